"""docs/maxtext.md agrees with the output of benchmarks/maxtext.py, and the printed configurations match MaxText's."""

import importlib.util
import random
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "maxtext.md").read_text()


@pytest.fixture(scope="module")
def maxtext():
    spec = importlib.util.spec_from_file_location("maxtext_policies", ROOT / "benchmarks" / "maxtext.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def rows(table: str) -> dict[str, list[str]]:
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| `")]
    return {name: cells for name, *cells in lines}


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_the_page_contains_the_scripts_figures(maxtext, number):
    """Checked at the shortest sequence length, which traces in seconds; the same code prints the other lengths."""
    model = maxtext.MODELS[number]
    stated = rows(PAGE.partition(f"### {model.name}\n")[2].partition("###")[0])
    computed = rows(maxtext.table(model, [2048]))
    assert {name: cells[:3] for name, cells in stated.items()} == computed and len(computed) == 11


def test_the_buffers_of_expert_parallelism_multiply_the_bytes_of_the_experts():
    """The values in the buffer are those that `minimal` saves and `save_dot_except_mlp`, without `mlpwo`, does not."""
    stated = rows(PAGE.partition("### Mixtral 8x7B\n")[2])
    everything, attention = (float(stated[f"`{name}`"][0].split()[0]) for name in ("minimal", "save_dot_except_mlp"))
    experts = everything - attention
    text = " ".join(PAGE.split())
    for factor in (4, 1.5):
        assert f"{attention:.0f} + {factor} · {experts:.0f} = {attention + factor * experts:.0f} KiB" in text
    assert f"{attention:.0f} + {experts:.0f} = {everything:.0f} KiB" in text


@pytest.mark.slow
def test_no_policy_saves_and_recomputes_more_than_another(maxtext):
    """A saved value is not recomputed, so if one policy saves a superset of another's names, it recomputes no more."""
    model = maxtext.MODELS[0]
    policies = {name: saved for name, (saved, offloaded) in maxtext.MENU.items() if not offloaded}
    found = {name: maxtext.row(saved, (), model, 2048) for name, saved in policies.items()}
    for small, few in policies.items():
        for large, many in policies.items():
            if {*few} <= {*many}:
                assert found[small].recompute >= found[large].recompute
                assert found[small].device_bytes <= found[large].device_bytes


def test_a_configuration_says_each_name_once(maxtext, seed):
    generator = random.Random(seed)
    for _ in range(200):
        names = generator.sample(maxtext.TENSORS, generator.randrange(len(maxtext.TENSORS)))
        cut = generator.randint(0, len(names))
        # MaxText saves decoder_layer_input by default, so a configuration does not list it.
        saved, offloaded = set(names[:cut]) - {"decoder_layer_input"}, set(names[cut:])
        policy, *settings = maxtext.configuration(names[:cut], names[cut:]).split()
        if policy == "remat_policy=custom":
            expected = {f"{name}=device" for name in saved} | {f"{name}=offload" for name in offloaded}
            assert set(settings) == expected and len(settings) == len(expected)
        else:
            assert tuple(map(set, maxtext.MENU[policy.removeprefix("remat_policy=")])) == (saved, offloaded)


def test_the_command_prints_a_configuration_or_a_reason(maxtext, capsys):
    assert maxtext.main(["context", "--offload", "decoder_layer_input"]) == 0
    assert capsys.readouterr().out == "remat_policy=custom context=device decoder_layer_input=offload\n"
    assert maxtext.main(["contxt"]) == 2 and "MaxText has no tensor called contxt" in capsys.readouterr().err
    assert maxtext.main(["context", "--offload", "context"]) == 2 and "cannot be saved" in capsys.readouterr().err
