"""`speedbench profile`: what a pass and a draft take on this machine, without any task, as a file for `advise`."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from speedbench.backends.native import NativeSession
    from speedbench.types import Drafting, Profile


def command(
    runner: Annotated[
        str, typer.Option("--runner", "-r", help="Whose target to profile: a native runner.")
    ] = "smollm2-135m",
    drafter: Annotated[str, typer.Option("--drafter", "-d", help="Drafters to time as well; none for no drafter.")] = (
        "ngram,suffix"
    ),
    draft_length: Annotated[str, typer.Option("-D", help="Draft lengths beside 0.")] = "",
    batch: Annotated[str, typer.Option("--batch", "-B", help="Batches.")] = "",
    context: Annotated[str, typer.Option(help="Tokens before a pass.")] = "",
    minutes: Annotated[float, typer.Option(min=0.05, help="Time to spend at most; what does not fit is noted.")] = 3.0,
    gemm: Annotated[
        int | None, typer.Option(min=0, help="Size of the square layer studied; 0 for no studies of kernels.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting, as engine.dtype=bfloat16.")
    ] = None,
    out: Annotated[str, typer.Option(help="The file to write.")] = "profile.json",
    as_json: Annotated[bool, typer.Option("--json", help="The profile on stdout as well.")] = False,
) -> None:
    """Time T_verif over batches, draft lengths and contexts, T_draft of each drafter, and kernels by themselves.

    Passes are timed as in a run, on made-up text, with one draft accepted in each. The defaults of the lists go by
    the device.
    """
    from pathlib import Path

    from speedbench import plugins, profiles
    from speedbench import runner as runners
    from speedbench.cli import parse
    from speedbench.cli.tables import console, plain
    from speedbench.errors import UserError
    from speedbench.files import dumps

    overrides = parse.settings(set_ or [])
    wanted = runners.overridden(runners.load(runner), overrides)
    if wanted.backend != "native":
        raise UserError(
            f"runner '{runner}' runs on '{wanted.backend}'; only the native backend's passes can be timed from within"
        )
    labels = [label for label in parse.names(drafter, "--drafter", "drafter") if label != "none"]
    draftings = runners.draftings(wanted, labels, overrides)
    for each in draftings:
        if not plugins.load("drafters", each.drafter).servable:
            raise UserError(f"--drafter {each.label}: needs the answer beforehand, and nobody can serve with it")
    path = Path(out)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise UserError(f"--out {out}: should be a file in a folder that is there")
    if path.exists():
        raise UserError(f"--out {out}: is there already, and a profile takes minutes; name another, or remove it")
    err = console(stderr=True)
    with plugins.load("backends", "native").open(wanted) as opened:
        session = cast("NativeSession", opened)
        lists = _lists(draft_length, batch, context, cuda=session.target.device.type == "cuda")
        for each in draftings:
            runners.check(wanted, each, lists["-D"])
        found = measured(session, draftings, lists, minutes, gemm, lambda line: err.print(plain(line), soft_wrap=True))
    profiles.write(path, found)
    if as_json:
        typer.echo(dumps(profiles.to_json(found), indent=2))
    else:
        _print(found, path)


def _lists(draft_length: str, batch: str, context: str, *, cuda: bool) -> dict[str, list[int]]:
    """What is asked for, else what suits the device."""
    from speedbench.cli import parse

    lengths = draft_length or ("1,3,7,15" if cuda else "1,2,4,8")
    return {
        "-D": [d for d in parse.integers(lengths, "-D", high=64) if d],
        "--batch": parse.integers(batch or ("1,8,32,128" if cuda else "1,2,4"), "--batch", low=1, high=4096),
        "--context": parse.integers(context or ("1024,8192,32768" if cuda else "64,512"), "--context", low=16),
    }


def measured(
    session: NativeSession,
    draftings: Sequence[Drafting],
    lists: dict[str, list[int]],
    minutes: float,
    gemm: int | None,
    notify: Any,
) -> Profile:
    """All that the verb measures, of a target that is loaded."""
    from speedbench import modelfacts
    from speedbench.environment import snapshot
    from speedbench.errors import UserError
    from speedbench.native.profile import course
    from speedbench.native.profile.passes import Build, Grid
    from speedbench.native.profile.studies import Shape, attention_kernel
    from speedbench.types import Load, Profile, Sampling

    target, lengths, contexts = session.target, lists["-D"], lists["--context"]
    longest = max(contexts) + max(lengths, default=0) + 128
    if session.context is not None and longest > session.context:
        raise UserError(f"--context {max(contexts)}: with {longest - max(contexts)} tokens to answer it exceeds the "
                        f"target's {session.context}")  # fmt: skip
    load = Load(sampling=Sampling(), longest=None, widest=max(lengths, default=0))
    facts = {}
    for each in draftings:
        for d in lengths:  # what cannot be made is refused before anything is timed
            proposer = session.decoder(each, d, 1, 64, load).proposer
            facts[each.label] = dict(proposer.facts) if proposer else {}

    def builder(drafting: Drafting) -> Build:
        return lambda d, rows, length: session.decoder(drafting, d, rows, length, load)

    config = _plain(target.config.to_dict())
    model = modelfacts.of(config, str(session.facts["model"]))
    asked = course.Course(
        grid=Grid(
            batches=tuple(lists["--batch"]), lengths=(0, *lengths), contexts=tuple(contexts), static=session.static,
            drafters=tuple((each.label, builder(each)) for each in draftings),
        ),
        seconds=60 * minutes, gemm=_size(target) if gemm is None else gemm, attention_context=max(contexts),
        shape=Shape(kv_heads=model.kv_heads, head_dim=model.head_dim, group=model.group),
    )  # fmt: skip
    seconds = course.estimate(target, asked)
    notify(f"about {seconds:.0f} s of passes, and the studies; {60 * minutes:.0f} s at most")
    found = course.run(target, asked, notify)
    return Profile(
        target=session.facts, config=config, environment=snapshot(), timed=found.timed, kernels=found.kernels,
        peaks=found.peaks, prefills=found.prefills, noise=found.noise, drafters=facts,
        settings={"minutes": minutes, "gemm": asked.gemm, **{key.strip("-"): value for key, value in lists.items()}},
        notes=found.notes, kernel_name=attention_kernel(target.device) if asked.gemm else None,
    )  # fmt: skip


def _size(target: Any) -> int:
    """The article's 6144 on a GPU; on a CPU what takes seconds."""
    return 6144 if target.device.type == "cuda" else 1024


def _plain(tree: Any) -> Any:
    """Of a config, what JSON has."""
    if isinstance(tree, dict):
        return {str(key): _plain(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_plain(value) for value in tree]
    return tree if tree is None or isinstance(tree, (str, int, float, bool)) else str(tree)


def _print(found: Profile, path: Path) -> None:
    """T_verif and T_draft as a table a context, then what the machine reached."""
    from speedbench.cli.tables import console, plain

    out = console()
    for table in _tables(found):
        out.print(table)
    if found.peaks is not None and found.peaks.flops and found.peaks.bandwidth:
        out.print(
            f"reached: {found.peaks.flops / 1e9:.0f} GFLOPS by a product of {found.peaks.product}² in "
            f"{found.peaks.dtype}, {found.peaks.bandwidth / 1e9:.1f} GB/s by a copy"
        )
    for note in found.notes:
        out.print(plain(f"warning: {note}"), style="yellow", soft_wrap=True)
    noise = "-" if found.noise is None else f"{100 * found.noise:.1f} %"
    out.print(plain(f"noise floor, the same twice: {noise}. Kept in {path}; use: speedbench advise --profile {path}"))


def _tables(found: Profile) -> list[Any]:
    from speedbench.cli.tables import blank, plain
    from speedbench.columns import UNKNOWN

    passes = blank("passes, ms")
    for title in ("drafter", "context", "B", "D", "T_verif", "T_draft", "other", "spread"):
        passes.add_column(title, justify="left" if title == "drafter" else "right")
    for each in found.timed:
        drafted = UNKNOWN if each.draft is None else f"{1e3 * each.draft:.2f}"
        passes.add_row(
            plain(each.drafter or UNKNOWN), str(each.context), str(each.batch), str(each.draft_length),
            f"{1e3 * each.verify:.2f}", drafted, f"{1e3 * each.other:.2f}", f"{100 * each.spread:.0f} %",
        )  # fmt: skip
    made = [passes]
    titles = {"gemm": f"linear layer, {found.settings.get('gemm')}²", "attention": found.kernel_name or "attention"}
    for study, title in titles.items():
        kernels = [each for each in found.kernels if each.study == study]
        if not kernels:
            continue
        table = blank(plain(title))
        for name in ("B", "D", "rows", "µs", "GFLOPS", "roofline share", "bound"):
            table.add_column(name, justify="right")
        for one in kernels:
            table.add_row(
                str(one.batch), str(one.draft_length), str(one.rows), f"{1e6 * one.seconds:.0f}",
                f"{one.flops / one.seconds / 1e9:.0f}", f"{100 * one.share:.0f} %", one.bound,
            )  # fmt: skip
        made.append(table)
    return made
