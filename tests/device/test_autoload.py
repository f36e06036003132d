"""What `import torch` does with us installed: little, and nothing that anybody else would notice."""

from __future__ import annotations

import subprocess
import sys

import pytest

from torchtpu import autoload
from torchtpu.errors import UnsupportedVersionError

NOT_ASKED = {"TORCHTPU_PLATFORM": None, "TORCHTPU_FALLBACK": None}


def test_import_torch_loads_neither_jax_nor_rules(fresh):
    done = fresh("""
        import sys, torch
        heavy = ("jax", "jaxlib", "torchtpu.rules", "torchtpu.graph", "torch._dynamo", "torch._inductor", "ml_dtypes")
        print([name for name in heavy if name in sys.modules], torch.tpu.device_count(), "torchtpu._C" in sys.modules)
    """)
    assert done.stdout == "[] 1 True\n"


def test_the_device_is_not_available_until_it_is_named(fresh):
    done = fresh("""
        import warnings, torch
        print(torch.tpu.is_available(), torch.accelerator.is_available(), torch.tpu.device_count())
        print(torch.accelerator.current_accelerator(), torch.accelerator.current_accelerator(check_available=True))
        print(torch.accelerator.device_count())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            x = torch.ones(2, device="tpu")
            torch.ones(2).to("tpu") + x
        print(len(caught), caught[0].category.__name__, caught[0].filename, caught[0].lineno, caught[0].message)
        print(torch.tpu.is_available(), torch.accelerator.is_available(), torch.tpu.device_count(), x.sum().item())
        print(torch.accelerator.current_accelerator(check_available=True))
    """, **NOT_ASKED)
    lines = done.stdout.splitlines()
    assert lines[:3] == ["False False 0", "tpu None", "0"]
    assert lines[3].startswith("1 EmulationWarning <string> 8 no TPU here: the tpu device is emulated on cpu (set TORCHTPU_PLATFORM")
    assert lines[4:] == ["True True 1 2.0", "tpu"]


@pytest.mark.parametrize("name_it", [
    "torch.nn.Linear(2, 2).to('tpu')", "torch.load('file.pt', map_location='tpu')", "torch.randn(2, device='tpu')",
    "torch.set_default_device('tpu'); torch.ones(1)"])
def test_ways_to_name_the_device(name_it, fresh, tmp_path):
    import torch

    torch.save(torch.ones(2), tmp_path / "file.pt")
    done = fresh(f"import torch; {name_it}; print(torch.tpu.is_available())", quiet=False, **NOT_ASKED)
    assert done.stdout == "True\n" and done.stderr.count("EmulationWarning") == 1


def test_asking_for_a_platform_needs_no_warning(fresh):
    done = fresh("import torch; print(torch.tpu.is_available()); torch.ones(1, device='tpu')", TORCHTPU_PLATFORM="cpu")
    assert done.stdout == "True\n"


@pytest.mark.parametrize(("variable", "value", "message"), [
    ("TORCHTPU_PLATFORM", "gpu", "TORCHTPU_PLATFORM='gpu': expected tpu, cuda or cpu"),
    ("TORCHTPU_CPU_DEVICES", "many", "TORCHTPU_CPU_DEVICES='many': expected a positive number"),
    ("TORCHTPU_CPU_DEVICES", "0", "TORCHTPU_CPU_DEVICES='0': expected a positive number"),
    ("TORCHTPU_EAGER_MODE", "lazy", "TORCHTPU_EAGER_MODE='lazy': expected fused, strict or debug"),
    ("TORCHTPU_CACHE_MAX_BYTES", "4GB", "TORCHTPU_CACHE_MAX_BYTES='4GB': expected a positive number of bytes"),
    ("TORCHTPU_PLATFROM", "cpu", "TORCHTPU_PLATFROM='cpu': expected a known variable (TORCHTPU_PLATFORM?)"),
    ("TORCHTPU_PLATFORM", "tpu", "No tpu device: "),
])
def test_wrong_settings_are_told_at_first_use(variable, value, message, fresh):
    done = fresh("""
        import torch
        print(torch.ones(3).sum().item(), torch.tpu.current_device())
        torch.manual_seed(0)
        for _ in range(2):
            try:
                torch.ones(1, device="tpu")
            except RuntimeError as error:
                print(type(error).__module__, error)
    """, **{variable: value})
    lines = done.stdout.splitlines()
    assert lines[0] == "3.0 0"
    assert len(lines) == 3 and lines[1] == lines[2] and lines[1].startswith(f"torchtpu.errors {message}")


def test_the_cpu_user_notices_nothing(fresh):
    done = fresh("""
        import sys, torch
        from torch.utils.data import DataLoader, TensorDataset

        assert torch.ones(2).device.type == "cpu" and torch.get_default_device().type == "cpu"
        assert torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2)).tolist() == [2, 2]
        model = torch.compile(torch.nn.Linear(2, 2), backend="aot_eager")
        model(torch.ones(1, 2)).sum().backward()
        assert torch.Generator().device.type == "cpu" and torch.Stream is not None
        with torch.autocast("cpu"):
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
        for x, in DataLoader(TensorDataset(torch.arange(4.0)), batch_size=2, num_workers=1):
            assert x.device.type == "cpu"
        torch.manual_seed(3)
        with torch.random.fork_rng():
            torch.rand(2)
        state = torch.get_rng_state()
        torch.set_rng_state(state)
        optimizer = torch.optim.AdamW(torch.nn.Linear(2, 2).parameters(), foreach=None)
        assert not torch.ones(1).is_pinned()
        import copy, pickle
        assert pickle.loads(pickle.dumps(copy.deepcopy(torch.ones(2)))).tolist() == [1, 1]
        assert not torch.tpu.is_available() and not torch.accelerator.is_available()
        print("jax" in sys.modules, "torchtpu.runtime.bridge" in sys.modules)
    """, **NOT_ASKED)
    assert done.stdout == "False True\n"


def test_autoload_can_be_switched_off(fresh):
    done = fresh("""
        import sys, torch
        print("torchtpu" in sys.modules, hasattr(torch, "tpu"), torch.accelerator.current_accelerator())
        import torchtpu
        print(torch.ones(3, device="tpu").sum().item())
    """, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.stdout == "False False None\n3.0\n"


def test_importing_torchtpu_first(fresh):
    done = fresh("""
        import torchtpu
        import torch
        print(torch.ones(3, device="tpu").sum().item(), torchtpu.__version__, sorted(torchtpu.__all__))
        import torchtpu.autoload
        torchtpu.autoload.register()
        torchtpu.autoload.autoload()
    """)
    assert done.stdout.startswith("3.0 0.1.0 ['__version__', 'abstract', 'from_jax', 'to_jax']")


ANOTHER_DEVICE = """
    import sys, types, torch
    torch.utils.rename_privateuse1_backend("foo")
    foo = types.ModuleType("torch.foo")
    foo.is_available = lambda: True
    foo.device_count = lambda: 1
    foo.current_device = lambda: 0
    torch._register_device_module("foo", foo)
"""


def test_another_accelerator_keeps_its_place(fresh):
    done = fresh(ANOTHER_DEVICE + """
    from torchtpu import autoload  # what torch would have called
    import torchtpu
    """.replace("    import torchtpu\n", "") + """
    autoload.autoload()
    print(hasattr(torch, "tpu"), torch._C._get_privateuse1_backend_name(), torch.device("foo").type)
    """, TORCH_DEVICE_BACKEND_AUTOLOAD="0", **NOT_ASKED) if False else None
    done = fresh(ANOTHER_DEVICE + """
    try:
        import torchtpu
    except RuntimeError as error:
        print(type(error).__name__, error)
    print(hasattr(torch, "tpu"), torch._C._get_privateuse1_backend_name(), torch.ones(2).sum().item())
    """, TORCH_DEVICE_BACKEND_AUTOLOAD="0", **NOT_ASKED)
    first, second = done.stdout.splitlines()
    assert first.startswith("ConflictingPackageError PyTorch has one slot for external devices, and 'foo' holds it")
    assert second == "False foo 2.0"


def test_the_official_package_beside_ours(fresh):
    done = fresh("""
        import types, torch
        torch.tpu = types.ModuleType("torch_tpu.api")
        try:
            import torchtpu
        except RuntimeError as error:
            print(type(error).__name__, error)
        print(torch.tpu.__name__, torch._C._get_privateuse1_backend_name())
    """, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    first, second = done.stdout.splitlines()
    assert first.startswith("ConflictingPackageError torch.tpu is already provided by torch_tpu.api: torchtpu was not registered.")
    assert "pip uninstall torch-tpu" in first and second == "torch_tpu.api privateuseone"


def test_autoload_stands_down_and_says_so_at_import(fresh, tmp_path):
    """The whole way: torch's own hook runs while another accelerator is at work."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.metadata as metadata\n"
        "original = metadata.entry_points\n"
        "class Other:\n"
        "    name = 'foo'\n"
        "    def load(self):\n"
        "        return lambda: exec(open('other.py').read(), {})\n"
        "def entry_points(**kwargs):\n"
        "    found = list(original(**kwargs))\n"
        "    return [Other(), *found] if kwargs.get('group') == 'torch.backends' else original(**kwargs)\n"
        "metadata.entry_points = entry_points\n")
    import textwrap

    (tmp_path / "other.py").write_text(textwrap.dedent(ANOTHER_DEVICE))
    done = fresh("""
        import sys, torch
        print(hasattr(torch, "tpu"), torch._C._get_privateuse1_backend_name(), "torchtpu._C" in sys.modules)
        try:
            import torchtpu
            print(torchtpu.to_jax)
        except Exception as error:
            print(type(error).__name__)
    """, PYTHONPATH=str(tmp_path), **NOT_ASKED)
    assert done.stdout == "False foo False\nConflictingPackageError\n"


@pytest.mark.parametrize(("version", "fine"), [
    ("2.13.0", True), ("2.13.1+cu130", True), ("2.13.0a0+git123", True), ("2.12.1", False), ("2.130.0", False), ("3.0.0", False)])
def test_one_sentence_for_other_versions_of_torch(version, fine):
    if fine:
        autoload._check_version(version)
    else:
        with pytest.raises(UnsupportedVersionError, match=f"supports torch 2.13, found {version}. Install the matching one"):
            autoload._check_version(version)


def test_an_unsupported_torch_still_imports(fresh):
    done = fresh("""
        import torch
        torch.__version__ = "2.99.0"
        from importlib.metadata import entry_points
        hook, = [e for e in entry_points(group="torch.backends") if e.name == "tpu"]
        try:
            hook.load()()
        except RuntimeError as error:
            print(type(error).__name__, error)
        print(torch.ones(2).sum().item(), hasattr(torch, "tpu"))
    """, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    lines = done.stdout.splitlines()
    assert lines[-1] == "2.0 False" and len(lines) <= 2
    if len(lines) == 2:
        assert lines[0].startswith("UnsupportedVersionError torchtpu 0.1.0 supports torch 2.13, found 2.99.0.")


def test_a_broken_core_does_not_break_torch(fresh, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.modules['torchtpu._C'] = None  # importing it raises ImportError\n")
    done = fresh("""
        import torch
        print(torch.ones(2).sum().item(), hasattr(torch, "tpu"))
        try:
            import torchtpu
            torch.ones(1, device="tpu")
        except (ImportError, RuntimeError) as error:
            print(type(error).__name__, error)
    """, PYTHONPATH=str(tmp_path))
    lines = done.stdout.splitlines()
    assert lines[0] == "2.0 False" and "torchtpu" in lines[1]


def test_entry_points_are_there():
    from importlib.metadata import entry_points

    assert [e.value for e in entry_points(group="torch.backends") if e.name == "tpu"] == ["torchtpu.autoload:autoload"]
    assert [e.value for e in entry_points(group="torch_dynamo_backends") if e.name == "tpu"] == ["torchtpu.compile:tpu_backend"]


def test_compile_on_the_device(fresh):
    fresh("""
        import torch
        model = torch.nn.Linear(3, 2).to("tpu")
        x = torch.ones(4, 3, device="tpu")
        expected = model(x).cpu()
        for backend in ("eager", "aot_eager"):
            torch.testing.assert_close(torch.compile(model, backend=backend)(x).cpu(), expected)
        from torchtpu.errors import NotYetError
        try:
            torch.compile(model, backend="tpu")(x)
        except Exception as error:
            assert "is not available yet" in str(error), error
        else:
            raise AssertionError
    """)


def test_the_command_line_needs_no_device():
    done = subprocess.run([sys.executable, "-m", "torchtpu.cli", "--help"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and "usage" in done.stdout
