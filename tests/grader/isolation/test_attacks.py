"""Hostile submissions: each gets the expected verdict, and no other submission's grade changes."""

import os
import secrets
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import bubblewrap
import pytest
from sample_answers import notebook

from grader.classroom.collect import Submission
from grader.classroom.seeds import seed_of_shapes
from grader.isolation.limits import CheckLimits

NAME = "checkpoint_dot_policy"
ROOT = Path(__file__).parents[3]
RIGHT = (ROOT / "solutions" / f"{NAME}.py").read_text()
WRONG = RIGHT.replace("jax.checkpoint(", "(lambda f, policy: f)(")
NOT_JUDGED, NOT_PASSED = "could not be judged", "not passed"
SEED = 7
PROCESSOR_SECONDS, SECONDS = 20, 300
FEW, SOON = 1, 5  # low limits on processor time and on seconds, for attacks that use up either one
MARK = f"attack-{secrets.token_hex(8)}"

HEAD = f"""
import ctypes, errno, gc, glob, itertools, json, os, pickle, resource, signal, socket, struct, sys, threading, time
import jax, jax.export, jax.numpy as jnp, numpy as np
import grader.exercises.registry, grader.tracing.capture, grader.answers.import_answers
import grader.isolation.sandboxed.messages, grader.verdicts.verdict
from grader.isolation.sandboxed.protocol import Captured, NoEvidence

def plainly(w1, w2, x):
    return jnp.sum((jax.nn.relu(x @ w1) @ w2) ** 2)

def tries(action, *arguments):
    try:
        return action(*arguments)
    except OSError as error:
        return error.errno

@jax.custom_vjp
def leaving(x):
    return jnp.sum(x)

leaving.defvjp(lambda x: (leaving(x), x), lambda x, ct: os._exit(0))

@jax.custom_vjp
def endless(x):
    return jax.lax.while_loop(lambda c: c >= 0, lambda c: c + 1, jnp.sum(x))

endless.defvjp(lambda x: (endless(x), x), lambda x, ct: (ct * x,))

class Yes(float):
    __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = __bool__ = lambda *_: True
    __hash__ = float.__hash__
    shape, dtype = (), np.dtype("float32")

    def __array__(self, *_, **__):
        return np.float32(self)

    def __reduce__(self):
        return os.system, ("touch {MARK}",)
"""

ATTACKS = {}


def attack(name, outcome, reason, body, at_import="None", exercise=NAME, parameters="w1, w2, x"):
    """Register a submission with the verdict that it must get and words of the reason."""
    text = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    # A name that the answer uses is evaluated when the answer is imported.
    source = f"{HEAD}\nat_import = {at_import}\ndef {exercise}({parameters}):\n    at_import\n{text}\n"
    ATTACKS[name] = source, exercise, outcome, reason


USED, LATE = f"more than {FEW} s of processor time", f"longer than {SOON} s"
# The slowest attacks come first, so that the others run alongside them.
attack(
    "an orphan", NOT_JUDGED, LATE,
    """
    ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
    os.close(3)
    for number in {*range(1, 65)} - {9, 19, 32, 33}:
        signal.signal(number, signal.SIG_IGN)
    time.sleep(1000)
    """,
)  # fmt: skip
attack("a loop in C at import", NOT_JUDGED, USED, "pass", at_import="max(iter(int, 1))")
attack(
    "a loop that no signal reaches", NOT_JUDGED, USED,
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
    while True:
        try:
            os.fork()
        except BaseException:
            pass
    """,
)  # fmt: skip
attack("a loop in a program", NOT_JUDGED, "number of iterations is not a constant", "return endless(x)")

attack("exit at import", NOT_JUDGED, "exited with status 0", "pass", at_import="os._exit(0)")
attack("exit in a gradient rule", NOT_JUDGED, "exited with status 0", "return leaving(x)")
attack("sys.exit at import", NOT_PASSED, "its cell raises SystemExit", "pass", at_import="sys.exit(0)")
attack("another program", NOT_PASSED, "PermissionError", "os.execv('/usr/bin/env', ['env', 'true'])")

attack("recursion", NOT_PASSED, "RecursionError", f"return {NAME}(w1, w2, x)")
attack(
    "recursion without a limit", NOT_JUDGED, "",
    f"sys.setrecursionlimit(2**31 - 1)\nreturn sorted([0], key=lambda _: {NAME}(w1, w2, x))",
)  # fmt: skip
# The arrays are never written, so the addresses run out before the memory does.
attack("memory, bit by bit", NOT_PASSED, "MemoryError", "return [np.empty(2**26, 'u1') for _ in range(10**9)]")
attack(
    "100 GB in XLA", NOT_JUDGED, "25,000,000,000 elements",
    "return plainly(w1, w2, x) + jnp.sum(jnp.zeros(25 * 10**9, x.dtype))",
)  # fmt: skip
attack(
    "evidence of 12 MB", NOT_JUDGED, "characters long; the limit is 10,000,000",
    "return plainly(w1, w2, x) + jnp.sum(x[0, 0] * np.random.rand(150_000).astype('float32'))",
)  # fmt: skip
attack("a fork", NOT_PASSED, "PermissionError", "while True: os.fork()")
attack(
    "threads", NOT_JUDGED, USED,
    "for _ in range(100): threading.Thread(target=sum, args=(itertools.repeat(0),), daemon=True).start()",
)  # fmt: skip
attack(
    "100 MB printed", NOT_PASSED, "that was 100 MB",
    """
    for _ in range(100):
        os.write(1, bytes(10**6))
    raise ValueError("that was 100 MB")
    """,
)  # fmt: skip
attack(
    "a full disk", NOT_PASSED, "No space left on device",
    "with open('/learner/full', 'wb') as file:\n    while True: file.write(bytes(2**20)) and file.flush()",
)  # fmt: skip
attack(
    "100,000 files", NOT_PASSED, "No space left on device",
    "for number in range(10**5): open(f'/learner/{number}', 'w').close()",
)  # fmt: skip

attack(
    "files", NOT_PASSED, "LookupError: 0 files",
    f"""
    places = ["{ROOT}/solutions/*.py", "{ROOT}/grader/catalog/*/expect.py", "{ROOT}/tests/**", "{ROOT}/exercises/*"]
    places += ["{ROOT}/.git/*", "/learner/*/[!a]*", "/tmp/*", "/home/*", "{Path.home()}/*"]
    places += ["/proc/*/environ", "/proc/*/maps"]
    found = [path for place in places for path in glob.glob(place, recursive=True)]
    found = [path for path in found if not "{ROOT}/".startswith(path + "/")]  # what the project lies in, and is empty
    raise LookupError(f"{{len(found)}} files {{found}}")
    """,
)  # fmt: skip
attack(
    "the solution", NOT_PASSED, "ModuleNotFoundError",
    f"from solutions.{NAME} import {NAME} as theirs\nreturn theirs(w1, w2, x)",
)  # fmt: skip
attack(
    "the catalogue", NOT_PASSED, "ModuleNotFoundError",
    f"from grader.exercises import registry\nreturn registry.expect('{NAME}').reference(w1, w2, x)[0]",
)  # fmt: skip
# Texts that exist only in `expect`, another learner's answer and the environment. The answer searches for them
# reversed, because otherwise it would find its own copy.
NEEDLES = ["relu is also applied after the second matmul", "a neighbour's own words", bubblewrap.SECRET]
attack(
    "memory and frames", NOT_PASSED, "LookupError: 0 of all",
    f"""
    if hasattr(sys, "found"):  # in another case
        raise LookupError(sys.found)
    needles = [turned[::-1] for turned in {[needle[::-1] for needle in NEEDLES]!r}]
    found, frame = [str(dict(os.environ)), *sys.argv], sys._getframe().f_back
    while frame:
        found += map(str, frame.f_locals.values())
        frame = frame.f_back
    gc.unfreeze()
    objects = gc.get_objects()
    found += [text for text in gc.get_referents(*objects) if isinstance(text, str) and text not in needles]
    secrets = [text for text in found if any(needle in text for needle in needles)]
    sys.found = f"{{len(secrets)}} of {{'all' if len(objects) > 10**5 else len(objects)}} {{secrets}}"
    raise LookupError(sys.found)
    """,
)  # fmt: skip

attack(
    "grades", NOT_PASSED, "LookupError: 0 written",
    f"""
    places = ["/", "/tmp", "/dev", "/dev/shm", "/proc", "/sys", "/learner/..", "OUTSIDE", *sys.path]
    places = [path for path in places if path not in ("/learner/submission", "/learner")]  # its own
    found = [path for path in places if type(tries(open, path + "/{MARK}", "w")) is not int]
    raise LookupError(f"{{len(found)}} written {{found}}")
    """,
)  # fmt: skip
attack(
    "network", NOT_PASSED, "URLError: <urlopen error",
    "import urllib.request\nreturn urllib.request.urlopen('http://127.0.0.1:8888').read()",
)  # fmt: skip
attack(
    "sockets", NOT_PASSED, "LookupError: 0 sockets",
    r"""
    kinds = [socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, socket.AF_PACKET, socket.AF_VSOCK]
    found = [kind for kind in kinds if type(tries(socket.socket, kind, socket.SOCK_DGRAM)) is not int]
    raise LookupError(f"{len(found)} sockets {found}")
    """,
)  # fmt: skip
attack(
    "signals", NOT_PASSED, "LookupError: nobody to kill",
    """
    for pid in [0, -1, os.getppid(), *range(2, 5000), *range(-5000, -1)]:
        tries(os.kill, pid, signal.SIGKILL)
    for which in (os.PRIO_PROCESS, os.PRIO_PGRP, os.PRIO_USER):
        tries(os.setpriority, which, 0, 19)
    raise LookupError("nobody to kill")
    """,
)  # fmt: skip
attack(
    "tracing", NOT_PASSED, "LookupError: nobody to trace",
    """
    libc, buffer = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    traced = [pid for pid in range(2, 5000) if libc.ptrace(16, pid, 0, 0) == 0]
    traced += [pid for pid in range(2, 5000) if libc.process_vm_readv(pid, buffer, 1, buffer, 1, 0) > 0]
    raise LookupError("somebody to trace" if traced else "nobody to trace")
    """,
)  # fmt: skip

ALSO_SAVES = "extra residual"
attack(
    "numpy says yes", NOT_PASSED, ALSO_SAVES,
    """
    for module in (np, jnp, np.testing):
        for name in ("allclose", "array_equal", "isclose", "all", "abs", "assert_allclose"):
            setattr(module, name, lambda *_, **__: True)
    return plainly(w1, w2, x)
    """,
)  # fmt: skip
attack(
    "another jax", NOT_PASSED, ALSO_SAVES,
    """
    jax.checkpoint = jax.remat = jax.ad_checkpoint.checkpoint = lambda f, **_: f
    jax.tree.flatten = jax.tree_util.tree_flatten
    return plainly(w1, w2, x)
    """,
)  # fmt: skip
attack(
    "hooks", NOT_PASSED, ALSO_SAVES,
    """
    def refuse(event, _):
        if event in ("open", "exec", "socket.sendmsg"):
            raise RuntimeError(event)
    sys.addaudithook(refuse)
    gc.callbacks.append(lambda *_: time.sleep(0.001))
    return plainly(w1, w2, x)
    """,
)  # fmt: skip
attack(
    "another jax.export",
    NOT_JUDGED,
    "cannot be exported as a forward and a backward program",
    "jax.export.export = None\nreturn plainly(w1, w2, x)",
)
attack(
    "another capture", NOT_JUDGED, "no function main",
    "grader.tracing.capture.program_text = lambda exported: 'module {}'\nreturn plainly(w1, w2, x)",
)  # fmt: skip
attack(
    "another grading", NOT_JUDGED, "its process returned invalid evidence",
    "pass",
    at_import="setattr(grader.tracing.capture, 'capture', "
    f"lambda *_: grader.verdicts.verdict.Verdict('{NAME}', 'passed'))",
)  # fmt: skip
attack(
    "pickled evidence", NOT_JUDGED, "its process returned invalid evidence",
    "os.write(3, struct.pack('<QQ', 0, 0) + pickle.dumps(Yes())); os._exit(0)",
)  # fmt: skip
attack(
    "evidence that backtracks", NOT_JUDGED, "damaged",
    """
    case = {"case": "float32", "output": "", "outputs": 0, "sources": [], "data": None}
    case["failure"] = {"kind": "raised", "text": "save_" * 10**6, "source": None}
    evidence = {"exercise": NAME, "parameters": [], "forward": "", "backward": "", "cases": [case]}
    grader.isolation.sandboxed.messages.send(socket.socket(fileno=3), Captured(json.dumps(evidence)))
    os._exit(0)
    """.replace("NAME", repr(NAME)),
)  # fmt: skip
attack(
    "evidence that nothing was attempted", NOT_PASSED, "raises NotImplementedError",
    """
    cases = grader.exercises.registry.cases(NAME, SHAPES)
    failure = {"kind": "not attempted", "text": "it raises NotImplementedError", "source": None}
    case = {"output": "", "outputs": 0, "sources": [], "undifferentiated": 0, "data": None, "failure": failure}
    evidence = {"exercise": NAME, "parameters": [], "forward": "", "backward": ""}
    evidence["cases"] = [case | {"case": each.name} for each in cases]
    grader.isolation.sandboxed.messages.send(socket.socket(fileno=3), Captured(json.dumps(evidence)))
    os._exit(0)
    """.replace("NAME", repr(NAME)).replace("SHAPES", str(seed_of_shapes(SEED, "evidence that nothing was attempted"))),
)  # fmt: skip
attack("a stub in part", NOT_PASSED, "NotImplementedError", "if x.shape[0]: raise NotImplementedError")
attack("a jump to nowhere", NOT_JUDGED, "crashed (SIGSEGV: Segmentation fault)", "ctypes.string_at(1)")
attack("a division in C", NOT_JUDGED, "crashed (SIG", "ctypes.CDLL(None).abort()")
attack("a message of a size that nobody takes", NOT_JUDGED, "invalid evidence", "os.write(3, b'x' * 100); os._exit(0)")
attack(
    "escape sequences, and a long text", NOT_PASSED, "ValueError:  [2Jhello",
    r"raise ValueError('\x1b[2Jhello ' + 'x' * 10**6)",
)  # fmt: skip
# Forged messages: whatever an answer's process sends, its submission gets a row and no other submission has to wait.
says = """
verdict = {"exercise": NAME, "outcome": OUTCOME, "findings": [FINDING]}
grader.isolation.sandboxed.messages.send(socket.socket(fileno=3), NoEvidence(verdict))
os._exit(0)
"""
for name, outcome, kind in [
    ("a failure of the machine's, it says", NOT_JUDGED, "machine"),
    ("an answer to another exercise, it says", "not attempted", "another exercise"),
    ("no attempt, it says", "not attempted", "not attempted"),
    ("a pass, it says", "passed", "raises"),
    ("something else than text, it says", NOT_PASSED, 5),
]:
    finding = {"kind": kind, "text": "so it says" if isinstance(kind, str) else [], "source": None, "next": None}
    body = says.replace("FINDING", repr(finding)).replace("OUTCOME", repr(outcome)).replace("NAME", repr(NAME))
    attack(name, NOT_JUDGED, "its process returned invalid evidence", body)

# If an answer lowered its own limits, it would seem to have been killed from outside.
attack(
    "a lower limit", NOT_PASSED, "not allowed to raise maximum limit",
    "resource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass",
)  # fmt: skip
attack(
    "stopped", NOT_PASSED, "LookupError: it goes on",
    """
    for pid in (os.getpid(), 0, -1, os.getppid(), *range(2, 500)):
        tries(os.kill, pid, signal.SIGSTOP)
    raise LookupError("it goes on")
    """,
)  # fmt: skip
attack(
    "clocks and turns", NOT_PASSED, "LookupError: 0 changed",
    """
    changes = [(time.clock_settime, time.CLOCK_REALTIME, 0.0), (os.nice, 1), (os.sched_setaffinity, 0, {0})]
    changes += [(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1)), (resource.prlimit, 0, 0, (1, 1))]
    changed = [change[0].__name__ for change in changes if type(tries(*change)) is not int]
    raise LookupError(f"{len(changed)} changed {changed}")
    """,
)  # fmt: skip
if os.uname().machine == "x86_64":
    attack(
        "the system calls of 32 bits", NOT_JUDGED, "the sandbox does not allow (SIGSYS)",
        """
        import mmap
        code = bytes.fromhex("b814000000cd80c3")  # getpid by int 0x80
        page = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 7)
        page[: len(code)] = code
        ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
        """,
    )  # fmt: skip
attack("an object that equals all", NOT_PASSED, "instead of bf16[2,2]", "return Yes(3)")
asked = {"exercise": "predict_residuals", "parameters": "op"}
attack("data that equals all", NOT_PASSED, "returns", "return Yes(3)", **asked)
attack("data that is a pickle", NOT_PASSED, "a bytes, not plain", "return pickle.dumps(Yes())", **asked)
attack(
    "text that equals all", NOT_PASSED, "not one of the names on the page",
    "return [type('Text', (str,), {'__eq__': lambda *_: True, '__hash__': str.__hash__})('all')]", **asked,
)  # fmt: skip
attack(
    "a list without an end", NOT_JUDGED, USED,
    "return type('List', (list,), {'__iter__': lambda _: iter(int, 1)})()", **asked,
)  # fmt: skip
attack("IPython", NOT_PASSED, "returns None", f"get_ipython().system('touch {MARK}')")
attack(
    "transformers", NOT_PASSED, "AttributeError",
    "from IPython import get_ipython\nget_ipython().input_transformers_post.append(lambda lines: ['pass'])",
)  # fmt: skip


NOTEBOOKS = {
    "magics": (notebook(f"%%bash\ntouch {MARK}", f"!touch {MARK}\n%run evil.py", RIGHT), "passed", ""),
    "an answer in bash": (notebook(f"%%bash\ntouch {MARK}\n{RIGHT}"), NOT_JUDGED, "has no answer"),
    "a notebook of brackets": ("[" * 100_000, NOT_JUDGED, "not a valid notebook"),
    "no notebook": ("{", NOT_JUDGED, "not a valid notebook"),
    "an answer of brackets": (notebook(f"{NAME} = {'-' * 100_000}1"), NOT_JUDGED, ""),
}


OUTCOMES = {name: (outcome, reason) for name, (_, _, outcome, reason) in ATTACKS.items()}
OUTCOMES |= {name: (outcome, reason) for name, (_, outcome, reason) in NOTEBOOKS.items()}


@pytest.fixture(scope="module")
def graded(tmp_path_factory, zygote, grader_in_sandbox):
    """Grade a class of attacks, three at a time. Return the grades by attack, the grades of honest learners among them,
    and the verdicts that the honest answers get alone."""
    outside = tmp_path_factory.mktemp("outside")

    def started():
        return bubblewrap.descendants(zygote._process.pid)

    def submission(learner, text, name):  # without the name of an exercise
        return Submission(learner, name, text.replace("OUTSIDE", str(outside)).encode())

    attacks = [submission(name, text, "answer.py") for name, (text, *_) in ATTACKS.items()]
    attacks += [submission(name, text, "page.ipynb") for name, (text, _, _) in NOTEBOOKS.items()]
    right, wrong = submission("right", f"# {NEEDLES[1]}\n{RIGHT}", "a.py"), submission("wrong", WRONG, "b.py")
    grader = grader_in_sandbox(CheckLimits(seconds=SECONDS, processor_seconds=PROCESSOR_SECONDS))
    hasty = {
        USED: grader_in_sandbox(CheckLimits(seconds=SECONDS, processor_seconds=FEW)),
        LATE: grader_in_sandbox(CheckLimits(seconds=SOON, processor_seconds=PROCESSOR_SECONDS)),
    }
    alone = [grader.grade(honest, SEED).verdict for honest in (right, wrong)]
    before, files = started(), open_files()
    class_ = [right, wrong, *attacks[:15], right, wrong, *attacks[15:30], right, wrong, *attacks[30:], right]

    def grade(one):
        return hasty.get(OUTCOMES.get(one.learner, ("", ""))[1], grader).grade(one, SEED)

    with ThreadPoolExecutor(3) as threads:
        grades = list(threads.map(grade, class_))
    assert grader.begin() is zygote and zygote.alive, "none of them took the sandbox along"
    deadline = time.monotonic() + 300
    while (more := started() - before) or open_files() > files:
        assert time.monotonic() < deadline, (more, files, open_files())
        time.sleep(0.1)
    by_learner = {grade.learner: grade for grade in grades if grade.learner not in ("right", "wrong")}
    yield by_learner, [grade for grade in grades if grade.learner in ("right", "wrong")], alone
    assert os.listdir(outside) == []
    for place in ("/", "/tmp", "/dev/shm", ROOT, Path.home(), Path.cwd(), *sys.path):
        assert not Path(place, MARK).exists()


def open_files():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("name", OUTCOMES)
@bubblewrap.needed
def test_an_attack_ends_in_its_own_grade(graded, name):
    grade, (outcome, reason) = graded[0][name], OUTCOMES[name]
    assert grade.verdict.outcome == outcome and reason in grade.reason, grade
    assert grade.reason.isprintable() and len(grade.reason) < 1100 and grade.seconds < 2 * SECONDS
    assert name in NOTEBOOKS or grade.verdict.exercise == ATTACKS[name][1]


@bubblewrap.needed
def test_answers_graded_next_to_attacks_have_the_same_grades_as_alone(graded):
    _, beside, alone = graded
    assert [verdict.outcome for verdict in alone] == ["passed", NOT_PASSED]
    assert [grade.verdict for grade in beside] == [alone[grade.learner == "wrong"] for grade in beside]
