"""Several devices in one process, emulated on the CPU."""

from __future__ import annotations


def test_tensors_on_eight_devices(fresh):
    fresh("""
        import torch
        from torchtpu.errors import DeviceIndexError, MixedDevicesError

        assert torch.tpu.device_count() == torch.accelerator.device_count() == 8
        x = torch.arange(4.0, device="tpu:3")
        assert x.device == torch.device("tpu", 3)
        assert (x * 2).device.index == 3 and (x * 2).tolist() == [0, 2, 4, 6]

        # copies between devices: values, dtypes, views, and what was only recorded
        y = (x + 1).to("tpu:5")
        assert y.device.index == 5 and y.tolist() == [1, 2, 3, 4]
        y.copy_(x.flip(0))
        assert y.tolist() == [3, 2, 1, 0]
        z = torch.zeros(2, 4, dtype=torch.int64, device="tpu:1")
        z[:, ::2].copy_(x[1:3])
        assert z.tolist() == [[1, 0, 2, 0]] * 2
        c = torch.tensor([1 + 2j], device="tpu:2")
        assert c.conj().to("tpu:4").tolist() == [1 - 2j]
        empty = torch.empty(3, device="tpu:2").to("tpu:4")
        assert empty.tolist() == [0, 0, 0]
        x.add_(10)
        assert y.tolist() == [3, 2, 1, 0]

        # the gradient finds its way back
        w = torch.ones(3, device="tpu:6", requires_grad=True)
        (w.to("tpu:7") * 3).sum().backward()
        assert w.grad.device.index == 6 and w.grad.tolist() == [3, 3, 3]

        for wrong in (lambda: x + y, lambda: torch.cat([x, y]), lambda: x.add_(y)):
            try:
                wrong()
            except MixedDevicesError as error:
                assert "tpu:3 and tpu:5" in str(error), error
            else:
                raise AssertionError("devices were mixed")
        try:
            torch.ones(1, device="tpu:8")
        except DeviceIndexError as error:
            assert "below 8" in str(error)
        else:
            raise AssertionError

        import jax, torchtpu
        assert torchtpu.from_jax(jax.device_put(jax.numpy.ones(2), jax.devices()[6])).device.index == 6
        assert next(iter(torchtpu.to_jax(torch.ones(2, device="tpu:4")).devices())) == jax.devices()[4]
        try:
            mesh = jax.sharding.Mesh(jax.devices(), "x")
            torchtpu.from_jax(jax.device_put(jax.numpy.ones(8), jax.NamedSharding(mesh, jax.P("x"))))
        except torchtpu.errors.InteropError as error:
            assert "one device" in str(error)
        else:
            raise AssertionError
    """, cold=True, TORCHTPU_CPU_DEVICES="8")


def test_state_of_eight_devices(fresh):
    fresh("""
        import torch

        # the current device, of this thread alone
        x = torch.arange(4.0, device="tpu:3")
        with torch.tpu.device(2):
            assert torch.ones(1, device="tpu").device.index == 2
            assert torch.tpu.current_device() == torch.accelerator.current_device_index() == 2
            with torch.tpu.device_of(x):
                assert torch.tpu.current_device() == 3
            assert torch.randn(2, device="tpu").device.index == 2
            torch.tpu.synchronize()
        assert torch.tpu.current_device() == 0
        import threading
        torch.tpu.set_device(4)
        seen = []
        thread = threading.Thread(target=lambda: seen.append(torch.tpu.current_device()))
        thread.start(); thread.join()
        assert seen == [0]
        with torch.accelerator.device_index(1):
            assert torch.empty(1, device="tpu").device.index == 1
        torch.tpu.set_device(0)

        # random states, memory and events of each
        torch.manual_seed(5)
        a, b = (torch.rand(3, device=f"tpu:{i}") for i in (1, 6))
        assert a.tolist() == b.tolist()
        assert len(torch.tpu.get_rng_state_all()) == len(torch.tpu.default_generators) == 8
        torch.tpu.manual_seed_all(3)
        g = torch.Generator("tpu:6")
        assert g.device.index == 6
        torch.rand(2, device="tpu:6", generator=g)
        before = torch.tpu.memory_allocated(7), torch.tpu.memory_allocated(0)
        held = torch.zeros(1 << 20, device="tpu:7")
        torch.tpu.synchronize(7)
        assert torch.tpu.memory_allocated(7) == before[0] + (4 << 20)
        assert torch.tpu.memory_allocated(0) == before[1]
        stream = torch.tpu.Stream(5)
        assert stream.device.index == 5
        with stream:
            assert torch.tpu.current_device() == 5 and torch.ones(1, device="tpu").device.index == 5
        event = torch.Event("tpu")
        event.record(stream)
        event.synchronize()
        assert event.device.index == 5

        # saving remembers the index, loading may change it
        import io
        file = io.BytesIO()
        torch.save(torch.arange(3, device="tpu:3"), file)
        for target, index in ((None, 3), ("tpu:1", 1), ({"tpu:3": "tpu:2"}, 2)):
            file.seek(0)
            assert torch.load(file, map_location=target).device.index == index
    """, cold=True, TORCHTPU_CPU_DEVICES="8")


def test_models_on_two_devices(fresh):
    fresh("""
        import torch
        from torch import nn

        class Split(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = nn.Linear(4, 8).to("tpu:0"), nn.Linear(8, 2).to("tpu:1")

            def forward(self, x):
                return self.second(self.first(x.to("tpu:0")).relu().to("tpu:1"))

        torch.manual_seed(0)
        model = Split()
        reference = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        reference[0].load_state_dict(model.first.state_dict())
        reference[2].load_state_dict(model.second.state_dict())
        x = torch.randn(16, 4)
        losses = []
        for net in (model, reference):
            optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
            for _ in range(5):
                loss = net(x).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.item())
        assert abs(losses[0] - losses[1]) < 1e-5, losses
    """, cold=True, TORCHTPU_CPU_DEVICES="2")


def test_jax_that_started_earlier_with_one(fresh):
    done = fresh("""
        import jax, torch
        jax.numpy.ones(1)
        try:
            torch.ones(1, device="tpu")
        except Exception as error:
            print(type(error).__name__, error)
        torch.ones(1)
    """, cold=True, TORCHTPU_CPU_DEVICES="4", JAX_PLATFORMS="cpu")
    assert done.stdout.startswith(
        "AlreadyStartedError TORCHTPU_CPU_DEVICES=4: JAX has already started with 1 CPU device(s). Set it before")


def test_jax_that_started_earlier_with_as_many(fresh):
    done = fresh("""
        import jax, torch
        jax.config.update("jax_num_cpu_devices", 2)
        jax.numpy.ones(1)
        print(torch.ones(3, device="tpu:1").sum().item(), torch.tpu.device_count())
    """, cold=True, TORCHTPU_CPU_DEVICES="2", JAX_PLATFORMS="cpu")
    assert done.stdout == "3.0 2\n"
