# SPDX-License-Identifier: MIT
# How the tests run: every .pipe and .test file under test/ whose RUN lines say so, in bash.
#
#   %pipec  the compiler        %stdlib  its standard library     %root    the source tree
#   %bin    build/bin           %libdir  build/lib                %build   the build folder
#   %cc     C compiler + flags  %runinc  the runtime's headers    %python  %cmake
#   %includes -I of every folder of sources that has headers
#   %library files of %stdlib to go through: all; where the code is instrumented, some that have each kind of op and order
#   %cc_only the compiler alone, %generator CMake's generator
#   %mpirun  starts so many processes: %mpirun 4 program (REQUIRES: mpi); after %outlive it lets the others live when one ends
#   %shared published schedules and profiles (REQUIRES: shared-data)
#   %much{A|B|C}  how much of a campaign: A; where the code is instrumented, which takes several times as long, B;
#           in ./dev soak C, or A if there is no C
#   %seed   what a campaign draws its programs from: fixed, so that one tree has one verdict; another in each ./dev soak
#   %patient COMMAND | FileCheck ... -DD=$D %enough  COMMAND gives its steps a deadline of $D seconds, which the checks
#           write [[D]]. If they do not hold, it is run again with a longer one: a busy machine may need that.
#   %torch  a Python that has PyTorch (REQUIRES: torch) or safetensors and numpy (REQUIRES: safetensors):
#           or transformers (REQUIRES: torch, transformers), or ortools: $PIPE_TORCH_PYTHON, else %python
#   %builder  a Python that has scikit-build-core (REQUIRES: scikit-build-core): $PIPE_BUILDER_PYTHON, else %python
#
# The longest tests start first: by the seconds that lit has recorded in the build folder, before there are any by those
# of .lit_test_times.txt here.
import os
import pty
import shutil
import subprocess
import sys

config.name = "pipe"
# External shell: lit 14's internal `not` accepts a crash as a failure.
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "tools"))
import tree
from timed import TimedTest

config.test_format = TimedTest(execute_external=True)
lit_config.bashPath = os.path.join(os.path.dirname(__file__), "tools", "shell.sh")  # which ends a test that hangs
config.suffixes = [".pipe", ".test"]
config.excludes = ["Inputs"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.build, "test")

features = config.features.split()
config.available_features.update(features)
if "sanitizer" in features:  # about texts, scripts and the package, not about code
    config.excludes += ["lint", "install", "docs", "editor", "tools"]

# The program itself: what is found in PATH may be a script that looks for it, at each start.
config.python = subprocess.run([config.python, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True, check=True).stdout.strip()
shared = os.environ.get("PIPE_SHARED_DATA", os.path.join(config.source, "..", "shared", "data"))
shared = os.path.realpath(shared)
if os.path.isdir(shared):
    config.available_features.add("shared-data")
for program in "spin", "chromium", "clang-tidy", "rsvg-convert", "make", "ninja":
    if shutil.which(program):
        config.available_features.add(program)
torch = os.environ.get("PIPE_TORCH_PYTHON", config.python)
builder = os.environ.get("PIPE_BUILDER_PYTHON", config.python)
for feature, python, module in [("torch", torch, "torch.distributed.pipelining"), ("safetensors", torch, "safetensors.numpy"),
                                ("transformers", torch, "transformers"), ("ortools", torch, "ortools"), ("yaml", config.python, "yaml"),
                                ("scikit-build-core", builder, "scikit_build_core")]:
    if subprocess.run([python, "-c", "import " + module], capture_output=True, check=False).returncode == 0:
        config.available_features.add(feature)
probe = os.path.join(config.build, "bin", "gpu_probe")  # and what is built where there may be a device
if os.path.exists(probe) and subprocess.run([probe], capture_output=True, timeout=120, check=False).returncode == 0:
    config.available_features.add("gpu")
    if shutil.which("compute-sanitizer"):
        config.available_features.add("compute-sanitizer")
try:  # a sandbox may have no /dev/pts
    for end in pty.openpty():
        os.close(end)
    config.available_features.add("pty")
except OSError:
    pass

hosts = os.path.join(config.test_source_root, "mpi", "Inputs", "hosts.sh")
if "mpi" in features and subprocess.run([hosts, "0"], capture_output=True).returncode == 0:
    config.available_features.add("netns")  # and a link with a delay:
    link = dict(os.environ, DELAY_LINK=os.path.join(config.build, "bin", "delay_link"))
    if subprocess.run([hosts, "1"], capture_output=True, env=link).returncode == 0:
        config.available_features.add("netem")

env = config.environment
env["PATH"] = os.pathsep.join([config.llvm_tools, os.environ["PATH"]])
env["LC_ALL"] = "C"
env["PYTHONDONTWRITEBYTECODE"] = "1"  # the source tree stays as it is
env["FILECHECK_OPTS"] = "--enable-var-scope"
# The default, exit 1, would satisfy `not`; timed.py sets ASAN_OPTIONS.
env["UBSAN_OPTIONS"] = "halt_on_error=1:abort_on_error=1:print_stacktrace=1"
env["HOME"] = os.path.expanduser("~")  # Open MPI 5 does not start without
for name, value in [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_mpi_yield_when_idle", "1"),
    ("OMPI_MCA_btl", "self,vader"),
    ("OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),  # of version 4
    ("OMPI_MCA_hwloc_base_binding_policy", "none"),
    ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),  # the same of version 5
    ("PRTE_MCA_hwloc_default_binding_policy", "none"),
]:
    env[name] = value
env["TSAN_OPTIONS"] = "halt_on_error=1:abort_on_error=1"

instrumented = "sanitizer" in features
library = config.build + "/share/pipe/stdlib"
if instrumented:  # what these import is found in the library
    SOME = "1f1b bpipe chimera dualpipe gems gpipe_recompute inference interleaved pipedream_2bw pipemare_t2 po_h seq1f1b v_half zb_2p zb_v"
    library, whole = os.path.join(config.test_exec_root, "library"), library
    shutil.rmtree(library, ignore_errors=True)
    os.makedirs(library)
    for name in SOME.split():
        os.symlink(f"{whole}/{name}.pipe", f"{library}/{name}.pipe")
much = 2 if instrumented else 3 if "PIPE_SOAK" in os.environ else 1
config.substitutions.append((r"%much\{([^|}]*)\|([^|}]*)\|([^|}]*)\}", r"\%d" % much))
config.substitutions.append((r"%much\{([^|}]*)\|([^|}]*)\}", r"\%d" % (2 if instrumented else 1)))
config.substitutions.append((r"%patient\b", "for D in 0.5 6 60; do"))
config.substitutions.append((r"%enough\b", "&& break; [ $D != 60 ] || exit 1; done"))
for name, value in [
    ("pipec", config.build + "/bin/pipec"),
    ("bin", config.build + "/bin"),
    ("libdir", config.build + "/lib"),
    ("stdlib", config.build + "/share/pipe/stdlib"),
    ("library", library),
    ("runinc", config.source + "/runtime/include"),
    ("root", config.source),
    ("build", config.build),
    ("cc", config.cc + " -std=c11"),
    ("cc_only", config.cc.split()[0]),
    ("cmake", config.cmake),
    ("generator", config.generator),
    ("python", config.python),
    # Leaks, and what is done with locks, are those of MPI; the rest is for Open MPI: as root, and with fewer cores than processes.
    ("mpirun", "env ASAN_OPTIONS=abort_on_error=1:detect_leaks=0 TSAN_OPTIONS=%s:detect_deadlocks=0:report_mutex_bugs=0:report_destroy_locked=0:report_signal_unsafe=0:suppressions=%s/test/tools/tsan.supp "
     "%s/test/tools/mpirun.sh %s" % (env["TSAN_OPTIONS"], config.source, config.source, config.mpiexec)),
    ("outlive", "env OMPI_MCA_orte_enable_recovery=1 OMPI_MCA_orte_abort_on_non_zero_status=0 PRTE_MCA_state_base_recoverable=1 "
     "PRTE_MCA_state_base_continuous=1 PRTE_MCA_state_base_error_non_zero_exit=0"),
    ("shared", shared),
    ("torch", torch),
    ("builder", builder),
    ("includes", " ".join(tree.include_flags(config.source))),
    ("seed", os.environ.get("PIPE_SEED", "2")),
]:
    config.substitutions.append(("%" + name + r"\b", value))
