"""Forked children: data loader workers live on the CPU, and whoever touches the device there is told."""

from __future__ import annotations

import textwrap


def test_loader_workers_beside_a_used_device(fresh):
    done = fresh("""
        import warnings
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        model = torch.nn.Linear(1, 1).to("tpu")
        kept = torch.ones(1000, device="tpu") * 2  # still only recorded when the workers start
        data = TensorDataset(torch.arange(12.0)[:, None])
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*fork.*")  # Python and JAX warn of threads beside a fork
            for epoch in range(2):
                batches = DataLoader(data, batch_size=3, num_workers=2, pin_memory=True)
                rows = [model(x.to("tpu", non_blocking=True)) for x, in batches]
                assert torch.equal(torch.cat(rows).cpu(), model(data.tensors[0].to("tpu")).cpu())
        assert kept.sum().item() == 2000
        print("done")
    """)
    assert done.stdout == "done\n"


def test_the_device_in_a_forked_child(fresh):
    done = fresh("""
        import os, sys, warnings
        warnings.filterwarnings("ignore", message=".*fork.*")
        import torch
        from torchtpu.errors import ForkedProcessError

        x = torch.arange(3.0, device="tpu")
        y = x + 1
        for use in (
                lambda: torch.ones(1, device="tpu"), lambda: x + 1, lambda: x.cpu(), lambda: y.tolist(), lambda: x.sum().item(),
                lambda: x.add_(1), lambda: torch.ones(3).to("tpu"), lambda: torch.zeros(3).copy_(x), lambda: repr(x),
                lambda: torch.tpu.synchronize(), lambda: torch.tpu.current_stream().query(), lambda: torch.tpu.Event().record(),
                lambda: torch.tpu.init(), lambda: torch.tpu.mem_get_info(), lambda: x.__dlpack__()):
            child = os.fork()
            if child == 0:
                try:
                    use()
                except ForkedProcessError as error:
                    os._exit(0 if "spawn" in str(error) else 3)
                except BaseException as error:
                    print(type(error), error, file=sys.stderr)
                    os._exit(2)
                os._exit(1)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert status == 0, (status, use.__code__.co_firstlineno)
        child = os.fork()
        if child == 0:  # CPU work, and leaving tpu tensors alone or dropping them, is fine
            assert torch.tpu._is_in_bad_fork()
            torch.manual_seed(3)
            (torch.ones(100, 100) @ torch.ones(100, 100)).sum().item()
            assert x.shape == (3,) and x.view(1, 3).t().stride() == (1, 3)
            del x, y
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert y.tolist() == [1, 2, 3] and not torch.tpu._is_in_bad_fork()
        print("done")
    """)
    assert done.stdout == "done\n"


def test_a_child_forked_before_the_first_use_may_use_it(fresh):
    done = fresh("""
        import os, torch
        child = os.fork()
        total = torch.arange(3, device="tpu").sum().item()
        assert child == 0 or os.waitpid(child, 0)[1] == 0  # the two do not write at the same time
        print(total, flush=True)
        if child == 0:
            os._exit(0)
    """)
    assert done.stdout == "3\n3\n"


def test_workers_of_a_loader_give_no_warning_of_jax(fresh):
    done = fresh("""
        import torch
        from torch.utils.data import DataLoader
        total = torch.zeros(2, device="tpu")
        for x in DataLoader(torch.ones(8, 2), batch_size=4, num_workers=2):
            total += x.to("tpu").sum(0)
        print(total.tolist())
    """, quiet=False)
    assert done.stdout == "[8.0, 8.0]\n" and "JAX" not in done.stderr


def test_spawned_children(fresh, tmp_path):
    (tmp_path / "job.py").write_text(
        "import torch\n\n\ndef job(x):\n    return (x.to('tpu') * 2).cpu()\n")
    done = fresh("""
        import torch, torch.multiprocessing as mp
        from job import job
        if __name__ == "__main__":
            torch.ones(1, device="tpu").item()
            with mp.get_context("spawn").Pool(1) as pool:
                print(pool.apply(job, (torch.ones(2),)).tolist())
    """)
    assert done.stdout == "[2.0, 2.0]\n"


def test_tensors_through_a_queue(fresh, tmp_path):
    (tmp_path / "job.py").write_text(textwrap.dedent("""
        import torch

        def job(inputs, outputs):
            parameter, x = inputs.get()
            assert type(parameter) is torch.nn.Parameter and parameter.requires_grad
            (parameter * x).sum().backward()
            outputs.put(parameter.grad)
    """))
    done = fresh("""
        import torch, torch.multiprocessing as mp
        from job import job
        if __name__ == "__main__":
            context = mp.get_context("spawn")
            inputs, outputs = context.Queue(), context.Queue()
            process = context.Process(target=job, args=(inputs, outputs))
            process.start()
            inputs.put((torch.nn.Parameter(torch.ones(2, device="tpu")), torch.arange(2.0, device="tpu")))
            grad = outputs.get(timeout=100)
            print(grad.device, grad.tolist())
            process.join()
    """)
    assert done.stdout == "tpu:0 [0.0, 1.0]\n"
