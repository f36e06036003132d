"""What `import torch` does with us installed: little, and nothing that anybody else would notice."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from importlib.metadata import entry_points

import pytest

from torchtpu import autoload
from torchtpu.errors import UnsupportedVersionError

NOT_ASKED = {"TORCHTPU_PLATFORM": None, "cold": True}
NOT_LOADED = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "TORCHTPU_PLATFORM": None, "cold": True}

# Runs a function in a forked child, so that one import of torch serves several first uses of the device.
IN_CHILD = """
import os, sys, traceback
import jax, torch

def in_child(function):
    child = os.fork()
    if child == 0:
        try:
            function()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""

# Runs our hook as torch does at the end of its own import.
RUN_HOOK = """
from importlib.metadata import entry_points
import torch

def run_hook():
    torch.__spec__._initializing = True
    hook, = [e for e in entry_points(group="torch.backends") if e.name == "tpu"]
    hook.load()()
    torch.__spec__._initializing = False
"""


def test_import_torch_loads_neither_jax_nor_rules(fresh):
    done = fresh("""
        import sys, torch
        heavy = ("jax", "jaxlib", "torchtpu.rules", "torchtpu.graph", "torch._dynamo", "torch._inductor", "ml_dtypes")
        print([name for name in heavy if name in sys.modules], torch.tpu.device_count(), "torchtpu._C" in sys.modules)
    """, cold=True)
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
    warning = "1 EmulationWarning <string> 8 no TPU here: the tpu device is emulated on cpu (set TORCHTPU_PLATFORM"
    assert lines[3].startswith(warning)
    assert lines[4:] == ["True True 1 2.0", "tpu"]


def test_ways_to_name_the_device(fresh):
    done = fresh(IN_CHILD + """
torch.save(torch.ones(2), "file.pt")
for name_it in (
        lambda: torch.nn.Linear(2, 2).to('tpu'), lambda: torch.load('file.pt', map_location='tpu'),
        lambda: torch.load('file.pt', map_location=torch.device('tpu')), lambda: torch.randn(2, device='tpu'),
        lambda: (torch.set_default_device('tpu'), torch.ones(1)), lambda: torch.ones(1).tpu(), lambda: torch.tpu.init()):
    in_child(lambda: (name_it(), print(torch.tpu.is_available())))
""", quiet=False, **NOT_ASKED)
    assert done.stdout == "True\n" * 7 and done.stderr.count("EmulationWarning") == 7


def test_asking_for_a_platform_needs_no_warning(fresh):
    done = fresh("import torch; print(torch.tpu.is_available()); torch.ones(1, device='tpu')", TORCHTPU_PLATFORM="cpu", cold=True)
    assert done.stdout == "True\n"


WRONG_SETTINGS = [
    ("TORCHTPU_PLATFORM", "gpu", "TORCHTPU_PLATFORM='gpu': expected tpu, cuda or cpu"),
    ("TORCHTPU_CPU_DEVICES", "many", "TORCHTPU_CPU_DEVICES='many': expected a number from 1 to 127"),
    ("TORCHTPU_CPU_DEVICES", "0", "TORCHTPU_CPU_DEVICES='0': expected a number from 1 to 127"),
    ("TORCHTPU_CPU_DEVICES", "3000", "TORCHTPU_CPU_DEVICES='3000': expected a number from 1 to 127"),
    ("TORCHTPU_EAGER_MODE", "lazy", "TORCHTPU_EAGER_MODE='lazy': expected fused, strict or debug"),
    ("TORCHTPU_CACHE_MAX_BYTES", "4GB", "TORCHTPU_CACHE_MAX_BYTES='4GB': expected a positive number of bytes"),
    ("TORCHTPU_PLATFROM", "cpu", "TORCHTPU_PLATFROM='cpu': expected a known variable (TORCHTPU_PLATFORM?)"),
    ("TORCHTPU_PLATFORM", "tpu", "No tpu device: "),
]


@pytest.mark.parametrize(("variable", "value", "message"), WRONG_SETTINGS)
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
    """, quiet=value != "tpu", cold=value == "tpu", **{variable: value})  # libtpu has things of its own to say
    lines = done.stdout.splitlines()
    assert lines[0] == "3.0 0"
    assert len(lines) == 3 and lines[1] == lines[2] and lines[1].startswith(f"torchtpu.errors {message}")


def test_an_unknown_variable_is_told_to_programs_that_ask_first(fresh):
    done = fresh("""
        import os, torch
        for variable in ("TORCHTPU_PLATFROM", "TORCHTPU_ZZZ"):
            os.environ[variable] = "cpu"
            try:
                print("tpu" if torch.tpu.is_available() else "cpu")
            except RuntimeError as error:
                print(error)
            del os.environ[variable]
        print(torch.tpu.is_available())
    """, **NOT_ASKED)
    misspelt, unlike, known = done.stdout.splitlines()
    assert misspelt.startswith("TORCHTPU_PLATFROM='cpu': expected a known variable (TORCHTPU_PLATFORM?). Correct the name")
    assert unlike.startswith("TORCHTPU_ZZZ='cpu': expected a known variable, one of TORCHTPU_PLATFORM, ")
    assert known == "False"


def test_wrong_settings_do_not_break_the_import(fresh):
    wrong = {variable: value for variable, value, _ in WRONG_SETTINGS[:6]}
    done = fresh("import torch; print(torch.ones(3).sum().item(), torch.tpu.device_count())", cold=True, **wrong)
    assert done.stdout == "3.0 1\n"


def test_the_cpu_user_notices_nothing(fresh):
    done = fresh("""
        import copy, pickle, sys, torch
        from torch.utils.data import DataLoader, TensorDataset

        assert torch.ones(2).device.type == "cpu" and torch.get_default_device().type == "cpu"
        assert torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2)).tolist() == [2, 2]
        model = torch.compile(torch.nn.Linear(2, 2), backend="aot_eager")
        model(torch.ones(1, 2)).sum().backward()
        with torch.autocast("cpu"):
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
        for x, in DataLoader(TensorDataset(torch.arange(4.0)), batch_size=2, num_workers=1):
            assert x.device.type == "cpu"
        torch.manual_seed(3)
        with torch.random.fork_rng():
            torch.rand(2)
        torch.set_rng_state(torch.get_rng_state())
        assert torch.Generator().device.type == "cpu"
        assert not torch.ones(1).is_pinned() and torch.ones(1).pin_memory().is_pinned()
        assert pickle.loads(pickle.dumps(copy.deepcopy(torch.ones(2)))).tolist() == [1, 1]
        assert not torch.tpu.is_available() and not torch.accelerator.is_available()
        print("jax" in sys.modules)
    """, **NOT_ASKED)
    assert done.stdout == "False\n"


def test_autoload_can_be_switched_off(fresh):
    done = fresh("""
        import sys, torch
        print("torchtpu" in sys.modules, hasattr(torch, "tpu"), torch.accelerator.current_accelerator())
        import torchtpu
        print(torch.tpu.device_count(), torch.accelerator.current_accelerator())
    """, **NOT_LOADED | {"TORCHTPU_PLATFORM": "cpu"})
    assert done.stdout == "False False None\n1 tpu\n"


def test_importing_torchtpu_first(fresh):
    done = fresh("""
        import torchtpu
        import torch
        print(torch.tpu.device_count(), torchtpu.__version__, sorted(torchtpu.__all__))
        torchtpu.autoload.register()
        torchtpu.autoload.autoload()
        print(torchtpu.errors.TorchTPUError.__name__, torchtpu.flags.get("TORCHTPU_PLATFORM"))
    """, cold=True)
    assert done.stdout == "1 0.1.0 ['__version__', 'abstract', 'from_jax', 'to_jax']\nTorchTPUError cpu\n"


def test_beside_another_accelerator_only_import_torchtpu_registers(fresh):
    done = fresh(RUN_HOOK + """
import sys
torch.accelerator.device_count = lambda: 1  # as with a working CUDA
run_hook()
print(hasattr(torch, "tpu"), torch._C._get_privateuse1_backend_name(), "torchtpu" in sys.modules, "jax" in sys.modules)
import torchtpu
print(hasattr(torch, "tpu"), torch._C._get_privateuse1_backend_name(), torchtpu.autoload._registered)
""", **NOT_LOADED)
    assert done.stdout == "False privateuseone False False\nTrue tpu True\n"


def test_beside_another_accelerator_a_platform_can_be_asked_for(fresh):
    done = fresh(RUN_HOOK + """
torch.accelerator.device_count = lambda: 1
run_hook()
print(hasattr(torch, "tpu"), torch.tpu.is_available())
""", **NOT_LOADED | {"TORCHTPU_PLATFORM": "cpu"})
    assert done.stdout == "True True\n"


def test_looking_for_another_accelerator_does_not_start_it():
    """torch.accelerator.is_available() would start CUDA, which no child forked later could use any more."""
    assert autoload._other_accelerator.__code__.co_names.count("is_available") == 0


ANOTHER_DEVICE = """
import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
_setup_privateuseone_for_python_backend("foo")
"""


def test_another_accelerator_keeps_its_place(fresh, tmp_path):
    """The whole way: torch's own hooks run, the other package's first."""
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent("""
        import importlib.metadata as metadata
        original = metadata.entry_points
        class Other:
            name = "foo"
            def load(self):
                return lambda: exec(open("other.py").read(), {})
        def entry_points(**kwargs):
            found = original(**kwargs)
            return [Other(), *found] if kwargs.get("group") == "torch.backends" else found
        metadata.entry_points = entry_points
    """))
    (tmp_path / "other.py").write_text(ANOTHER_DEVICE)
    done = fresh("""
        import sys, torch
        print(hasattr(torch, "tpu"), torch._C._get_privateuse1_backend_name(), "torchtpu" in sys.modules)
        print(torch.accelerator.current_accelerator(), torch.ones(2).sum().item(), torch.get_default_device())
        print(torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2)).tolist())
        try:
            import torchtpu
        except RuntimeError as error:
            print(type(error).__name__, error)
        print(torch.accelerator.current_accelerator())
    """, PYTHONPATH=str(tmp_path), **NOT_ASKED)
    lines = done.stdout.splitlines()
    assert lines[:3] == ["False foo False", "foo 2.0 cpu", "[2.0, 2.0]"]
    assert lines[3].startswith("ConflictingPackageError PyTorch has one slot for external devices, and 'foo' holds it")
    assert lines[4] == "foo"


def test_the_official_package_beside_ours(fresh):
    done = fresh(RUN_HOOK + """
import types
torch.tpu = types.ModuleType("torch_tpu.api")
run_hook()
try:
    import torchtpu
except RuntimeError as error:
    print(type(error).__name__, error)
print(torch.tpu.__name__, torch._C._get_privateuse1_backend_name())
""", **NOT_LOADED)
    first, second = done.stdout.splitlines()
    assert first.startswith("ConflictingPackageError torch.tpu is already provided by torch_tpu.api: torchtpu was not registered.")
    assert "pip uninstall torch-tpu" in first and second == "torch_tpu.api privateuseone"


@pytest.mark.parametrize(("version", "fine"), [
    ("2.13.0", True), ("2.13.1+cu130", True), ("2.13.0a0+git123", True), ("2.12.1", False), ("2.130.0", False), ("3.0.0", False)])
def test_one_sentence_for_other_versions_of_torch(version, fine):
    if fine:
        autoload._check_version(version)
    else:
        with pytest.raises(UnsupportedVersionError, match=f"supports torch 2.13, found {version}. Install the matching one"):
            autoload._check_version(version)


def test_an_unsupported_torch_still_imports(fresh):
    done = fresh(RUN_HOOK + """
torch.__version__ = "2.99.0"
run_hook()
print(torch.ones(2).sum().item(), hasattr(torch, "tpu"))
try:
    import torchtpu
except RuntimeError as error:
    print(type(error).__name__, error)
""", **NOT_LOADED)
    first, second = done.stdout.splitlines()
    assert first == "2.0 False"
    assert second.startswith("UnsupportedVersionError torchtpu 0.1.0 supports torch 2.13, found 2.99.0. Install the matching one.")


def test_a_broken_core_does_not_break_torch(fresh, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent("""
        import sys
        class Broken:
            def find_spec(self, name, *_):
                if name == "torchtpu._C":
                    raise ImportError("undefined symbol: no_such_symbol")
        sys.meta_path.insert(0, Broken())
    """))
    done = fresh("""
        import torch
        print(torch.ones(2).sum().item(), hasattr(torch, "tpu"))
        try:
            import torchtpu
        except RuntimeError as error:
            print(error)
    """, PYTHONPATH=str(tmp_path), cold=True)
    lines = done.stdout.splitlines()
    assert lines[0] == "2.0 False" and lines[1].startswith("The core of torchtpu cannot be loaded: undefined symbol")


def test_entry_points_are_there():
    assert [e.value for e in entry_points(group="torch.backends") if e.name == "tpu"] == ["torchtpu.autoload:autoload"]
    assert [e.value for e in entry_points(group="torch_dynamo_backends") if e.name == "tpu"] == ["torchtpu.compile:tpu_backend"]


def test_compile_on_the_device(fresh):
    fresh("""
        import torch

        model = torch.nn.Linear(3, 2).to("tpu")
        x = torch.ones(4, 3, device="tpu")
        expected = model(x).cpu()
        for backend in ("eager", "aot_eager", "tpu", "inductor"):
            torch.testing.assert_close(torch.compile(model, backend=backend)(x).cpu(), expected)

        def broken(x):
            y = x * 3
            print("a graph break")
            return [value.item() for value in (y + 1).unbind()]  # here Dynamo watches while operators are recorded

        assert torch.compile(broken, backend="eager")(torch.ones(2, device="tpu")) == [4, 4]
    """, quiet=False)  # Dynamo tells of the graph break


def test_the_command_line_needs_no_device():
    done = subprocess.run([sys.executable, "-m", "torchtpu.cli", "--help"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and "usage" in done.stdout
