from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tritonpy import plugin_manager
from tritonpy.cli.main import main
from tritonpy.cli.other_flags import REASONS, REFUSED, WITHOUT_EFFECT
from tritonpy.cli.serve import serve
from tritonpy.cli.serve_flags import GROUPS


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that says why `corectl serve` does not start."""
    assert main(["serve", "--model-repository=m", *arguments]) == 1
    usage, hint, empty, error = capsys.readouterr().err.splitlines()
    assert (usage[:20], hint[:3], empty) == ("Usage: corectl serve", "Try", "")
    return error


FORMAT = "option format is '<config name>:<setting>=<value>'. Got "


@pytest.mark.parametrize(
    ("flag", "noun"), [("--http-restricted-api", "api"), ("--grpc-restricted-protocol", "protocol")]
)
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", FORMAT),
        ("health", f"{FORMAT}health"),
        ("health:k", f"{FORMAT}health:k"),
        ("health:k=", f"{FORMAT}health:k="),
        ("health:=v", f"{FORMAT}health:=v"),
        (":k=v", f"{FORMAT}:k=v"),
        ("nope:k=v", "unknown restricted {noun} 'nope'"),
        ("health,nope:k=v", "unknown restricted {noun} 'nope'"),
        ("health,:k=v", "unknown restricted {noun} ''"),
        ("health, metadata:k=v", "unknown restricted {noun} ' metadata'"),
        ("Health:k=v", "unknown restricted {noun} 'Health'"),
        ("model_config:k=v", "unknown restricted {noun} 'model_config'"),
        ("health,health:k=v", "restricted {noun} 'health' can not be specified in multiple config groups"),
    ],
)
def test_a_restriction_that_makes_no_sense_is_refused_as_tritonserver_does(
    capsys: pytest.CaptureFixture[str], flag: str, noun: str, value: str, text: str
) -> None:
    error = error_of(capsys, f"{flag}={value}")

    assert error.startswith(f'Error: Bad option: "{flag}". ')
    assert text.format(noun=noun) in error


@pytest.mark.parametrize("flag", ["--http-restricted-api-file", "--grpc-restricted-protocol-file"])
def test_a_file_of_restrictions_is_refused_by_its_line_and_shows_no_secret(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, flag: str
) -> None:
    file = tmp_path / "keys"
    file.write_text("# who may load\n\nmodel-repository:key=sesame\nhealth key sesame\n")
    missing = tmp_path / "missing"
    binary = tmp_path / "binary"
    binary.write_bytes(b"health:key=\xff")

    wrong, lost, foreign = (error_of(capsys, f"{flag}={path}") for path in (file, missing, binary))

    assert f"{flag}: line 4 of '{file}' has another format than '<config name>:<setting>=<value>'" in wrong
    assert f"{flag}: '{missing}' cannot be read: No such file or directory" in lost
    assert f"{flag}: '{binary}' cannot be read: it is not UTF-8" in foreign
    assert "sesame" not in wrong


def test_a_category_may_be_restricted_in_one_group_only(capsys: pytest.CaptureFixture[str]) -> None:
    error = error_of(capsys, "--http-restricted-api=health:a=b", "--http-restricted-api=trace,health:c=d")

    assert "restricted api 'health' can not be specified in multiple config groups" in error


@pytest.mark.parametrize("flag", ["--http-header-forward-pattern", "--grpc-header-forward-pattern"])
def test_a_pattern_that_cannot_be_read_is_refused(capsys: pytest.CaptureFixture[str], flag: str) -> None:
    assert error_of(capsys, f"{flag}=[").startswith(f"Error: Bad option: \"{flag}\". Error parsing '[': ")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--https-certificate={pem}"], "--https-certificate and --https-key must be given together"),
        (["--https-key={pem}"], "--https-certificate and --https-key must be given together"),
        (["--grpc-use-ssl=true"], "--grpc-use-ssl needs --grpc-server-cert"),
        (["--grpc-use-ssl=true", "--grpc-server-cert={pem}"], "--grpc-use-ssl needs --grpc-server-key"),
        (
            ["--grpc-use-ssl-mutual=true", "--grpc-server-cert={pem}", "--grpc-server-key={pem}"],
            "--grpc-use-ssl-mutual needs --grpc-root-cert",
        ),
        (
            ["--https-certificate={pem}", "--https-key=/nowhere"],
            "Bad option: \"--https-key\". cannot read '/nowhere': No such file or directory",
        ),
    ],
)
def test_a_certificate_that_cannot_work_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], text: str
) -> None:
    pem = tmp_path / "some.pem"
    pem.write_text("")

    assert text in error_of(capsys, *(argument.format(pem=pem) for argument in arguments))


def test_files_of_a_tls_that_is_not_used_are_not_looked_for(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["serve", "--model-repository=m", "--show-config", "--grpc-server-cert=/nowhere"])

    assert status == 0


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            "--host-policy=gpu_0",
            "--host-policy option format is '<policy name>,<setting>=<value>'. Got gpu_0",
        ),
        ("--host-policy=gpu_0,numa-node=", "--host-policy option format is"),
        (
            "--host-policy=gpu_0,cores=1",
            "Unsupported host policy setting 'cores' is specified, supported settings are 'numa-node', "
            "'cpu-cores' (host policy 'gpu_0')",
        ),
        ("--host-policy=cpu,numa-node=x", "Parsing 'numa-node' value: Can't parse 'x' to integer"),
        ("--host-policy=cpu,cpu-cores=a-b", "Parsing 'cpu-cores' value: Can't parse 'a' to integer"),
        ("--host-policy=cpu,cpu-cores=1-", "Parsing 'cpu-cores' value: Can't parse '' to integer"),
        ("--host-policy=cpu,cpu-cores=-1-2", "Parsing 'cpu-cores' value: Can't parse '' to integer"),
        (
            "--host-policy=cpu,cpu-cores=x",
            "format is '<lower_cpu_core_id>-<upper_cpu_core_id>'. Got x (host policy 'cpu')",
        ),
        ("--host-policy=cpu,cpu-cores=3-1", "goes from the lower to the upper core. Got 3-1"),
        ("--host-policy=cpu,cpu-cores=0-999999999", "'999999999' is out of range"),
        ("--min-supported-compute-capability=high", "Invalid option value. Got high"),
        ("--model-load-gpu-limit=0", "requires format <first>:<second>. Found: 0"),
        ("--model-load-gpu-limit=0:2", "expects limit fraction to be in range [0.0, 1.0], got 2.000000"),
        ("--model-load-gpu-limit=0:-0.4", "expects limit fraction to be in range [0.0, 1.0], got -0.400000"),
        ("--model-load-gpu-limit=-1:0.4", "expects device ID >= 0, got -1"),
        ("--model-load-gpu-limit=x:0.5", "Invalid option value. Got x; expected the number of a GPU"),
        ("--model-load-gpu-limit=0:x", "Invalid option value. Got x; expected a fraction from 0.0 to 1.0"),
        ("--model-load-thread-count=0", "out of bound. Got 0"),
        ("--http-max-input-size=0", "--http-max-input-size must be greater than 0."),
        ("--http-max-input-size=-1", "--http-max-input-size must be greater than 0."),
        ("--http-thread-count=many", "Invalid option value. Got many"),
        ("--http-thread-count=-1", "out of bound. Got -1"),
        ("--grpc-infer-thread-count=2x", "Invalid option value. Got 2x"),
        ("--buffer-manager-thread-count=", "Invalid option value. Got "),
        ("--enable-peer-access=maybe", "invalid value for bool option: maybe"),
        ("--model-load-retry-count=-1", "out of bound. Got -1"),
        ("--model-namespacing=maybe", "invalid value for bool option: maybe"),
        ("--repository-poll-secs=often", "expected a number of seconds from 0"),
        ("--repository-poll-secs=-1", "expected a number of seconds from 0"),
        ("--repository-timeout-secs=0", "expected 1 to 3600"),
        ("--repository-timeout-secs=often", "expected a number of seconds from 0"),
        ("--model-repository=hdfs://host/x", "has the unknown prefix 'hdfs://'"),
        ("--model-repository=s3://id:secret@bucket/x", "must not hold credentials"),
        ("--cuda-memory-pool-byte-size=64", "requires format <first>:<second>. Found: 64"),
        ("--cuda-memory-pool-byte-size=-1:64", "expects device ID >= 0, got -1"),
        ("--cuda-virtual-address-size=0:much", "Invalid option value. Got much"),
        ("--pinned-memory-pool-byte-size=-1", "out of bound. Got -1"),
        ("--metrics-interval-ms=soon", "Invalid option value. Got soon"),
        ("--metrics-interval-ms=-5", "Invalid option value. Got -5"),
        ("--metrics-config=summary", "option format is <setting>=<value>. Got summary"),
        ("--metrics-config=summary_latencies=often", "invalid value for summary_latencies: 'often'"),
    ],
)
def test_a_setting_of_models_or_devices_that_makes_no_sense_is_refused(
    capsys: pytest.CaptureFixture[str], given: str, text: str
) -> None:
    error = error_of(capsys, given)

    assert error.startswith(f'Error: Bad option: "{given.partition("=")[0]}". ')
    assert text in error


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            "--rate-limit=Often",
            "invalid argument for --rate-limit, got: Often; expected off or execution_count",
        ),
        ("--rate-limit-resource=R1", "'<resource_name>:<count>'. Got R1"),
        ("--rate-limit-resource=:1", "'<resource_name>:<count>'. Got :1"),
        ("--rate-limit-resource=R:1:2:3", "'<resource_name>:<count>'. Got R:1:2:3"),
        ("--rate-limit-resource=R:much", "Invalid option value. Got much"),
        ("--rate-limit-resource=R:-1", "out of bound. Got -1"),
        ("--rate-limit-resource=R:1:x", "Invalid option value. Got x"),
    ],
)
def test_a_setting_of_the_rate_limiter_that_makes_no_sense_is_refused(
    capsys: pytest.CaptureFixture[str], given: str, text: str
) -> None:
    error = error_of(capsys, given)

    assert error.startswith(f'Error: Bad option: "{given.partition("=")[0]}". ')
    assert text in error


WISHES = (
    "--allow-sagemaker=on",
    "--allow-vertex-ai=true",
    "--sagemaker-port=x",
    "--sagemaker-safe-port-range=8000",
    "--sagemaker-thread-count=x",
    "--vertex-ai-default-model=m",
    "--vertex-ai-port=8080",
    "--vertex-ai-thread-count=8",
)
ASKING_FOR_NOTHING = (
    "--allow-sagemaker=0",
    "--allow-vertex-ai=off",
    "--sagemaker-port=8080",
    "--sagemaker-safe-port-range=8080-9080",
    "--sagemaker-thread-count=8",
)
POOLS_OF_NOTHING = (
    "--buffer-manager-thread-count=0",
    "--enable-peer-access=false",
    "--grpc-infer-allocation-pool-size=0",
)


@pytest.mark.parametrize("given", WISHES)
def test_an_option_of_tritonserver_that_is_refused_says_why(
    capsys: pytest.CaptureFixture[str], given: str
) -> None:
    error = error_of(capsys, given)

    why = REFUSED[given.partition("=")[0]]
    assert error == f"Error: '{given}' is an option of tritonserver that is refused here: {why}"


def test_every_flag_that_is_refused_is_tried_here() -> None:
    tried = {given.partition("=")[0] for given in WISHES}

    assert set(REFUSED) - tried == set()


@pytest.mark.parametrize(
    "given",
    [*ASKING_FOR_NOTHING, *POOLS_OF_NOTHING, "--allow-vertex-ai=true --allow-vertex-ai=false"],
)
def test_a_flag_that_asks_for_nothing_is_accepted(capsys: pytest.CaptureFixture[str], given: str) -> None:
    status = main(["serve", "--model-repository=m", "--show-config", *given.split()])

    assert (status, capsys.readouterr().err) == (0, "")


def test_flags_that_are_refused_are_not_proposed(capsys: pytest.CaptureFixture[str]) -> None:
    error = error_of(capsys, "--allow-sagemakr=1")

    assert error.startswith("Error: unrecognized option '--allow-sagemakr'")
    assert "--allow-sagemaker" not in error


@pytest.fixture
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """`corectl serve` does everything but serve."""
    server = ModuleType("tritonpy.server")
    server.run = lambda options, gc_threshold: 0  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tritonpy.server", server)
    monkeypatch.setattr(sys, "setswitchinterval", lambda interval: None)


@pytest.mark.usefixtures("no_server")
def test_nothing_is_said_about_flags_that_ask_for_nothing(tmp_path: Path) -> None:
    log = tmp_path / "server.log"

    status = main(
        ["serve", "--model-repository=m", f"--log-file={log}", *ASKING_FOR_NOTHING, *POOLS_OF_NOTHING]
    )

    assert (status, log.read_text()) == (0, "")


@pytest.mark.usefixtures("no_server")
def test_an_option_without_effect_is_accepted_and_the_log_says_so(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    given = [f"{option.opts[0]}=1" for option in WITHOUT_EFFECT]

    status = main(["serve", "--model-repository=m", f"--log-file={log}", *given])

    assert status == 0
    assert logging.getLogger("tritonpy").handlers == []
    lines = log.read_text().splitlines()
    assert len(lines) == len(REASONS)
    for line, (flag, why) in zip(lines, REASONS.items(), strict=True):
        assert line.startswith("W")
        assert line.endswith(f'] "{flag} has no effect: {why}"')


def test_help_shows_every_option_under_one_heading(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--help"]) == 0

    shown: dict[str, set[str]] = {}
    for line in capsys.readouterr().out.splitlines():
        if line.endswith(":") and not line.startswith(" "):
            heading = line[:-1]
        elif line.startswith("  -"):
            shown.setdefault(heading, set()).add(line.split()[0].rstrip(","))
    assert list(shown) == list(GROUPS)
    expected = {name: {option.opts[0] for option in options} for name, options in GROUPS.items()}
    shown["Server"] -= {"-h", "--help"}  # click keeps the names of the first program that asked for them
    assert shown == expected
    in_groups = [option for options in GROUPS.values() for option in options]
    assert [option for option in serve.params if not getattr(option, "hidden", False)] == in_groups


def test_what_a_header_must_say_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    main(["serve", "--model-repository=m", "--show-config", "--http-restricted-api=health,trace:key=secret"])

    shown = capsys.readouterr().out
    assert "health,trace:key=***" in shown
    assert "secret" not in shown


def test_a_prefix_whose_plugin_is_not_installed_names_the_one_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_manager, "distributions", tuple)

    error = error_of(capsys, "--model-repository=s3://bucket/models")

    assert error == (
        'Error: Bad option: "--model-repository". s3:// file-system not supported (model repository '
        "s3://bucket/models); to install it: pip install tritonpy-store-cloud"
    )


CACHE_FORMAT = "--cache-config option format is"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("local", f"No cache specified. {CACHE_FORMAT} <cache name>,<setting>=<value>. Got local"),
        (",size=1", f"No cache specified. {CACHE_FORMAT} <cache name>,<setting>=<value>. Got ,size=1"),
        ("local,", f"{CACHE_FORMAT} '<cache name>,<setting>=<value>'. Got local,"),
        ("local,size", f"{CACHE_FORMAT} '<cache name>,<setting>=<value>'. Got local,size"),
        ("local,=1", f"{CACHE_FORMAT} '<cache name>,<setting>=<value>'. Got local,=1"),
        ("local,size=", f"{CACHE_FORMAT} '<cache name>,<setting>=<value>'. Got local,size="),
    ],
)
def test_a_setting_of_a_cache_of_another_form_is_refused(
    capsys: pytest.CaptureFixture[str], value: str, text: str
) -> None:
    assert error_of(capsys, f"--cache-config={value}") == f'Error: Bad option: "--cache-config". {text}'


@pytest.mark.parametrize("value", ["0", "-1", "soon"])
def test_the_timeout_of_a_cache_is_a_number_from_one(capsys: pytest.CaptureFixture[str], value: str) -> None:
    assert error_of(capsys, f"--cache-timeout-ms={value}").startswith(
        'Error: Bad option: "--cache-timeout-ms". '
    )


def test_the_old_option_for_a_cache_and_the_new_one_exclude_each_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = ("--response-cache-byte-size=1", "--cache-config=local,size=1")
    assert main(["serve", "--model-repository=m", *flags]) == 1

    assert capsys.readouterr().err.splitlines()[-1] == (
        "Error: Incompatible flags --response-cache-byte-size and --cache-config both provided. "
        "Please provide one or the other."
    )
