from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from types import ModuleType

import pytest
from tritonpy.cli.flag_values import READERS, value_type
from tritonpy.cli.main import main
from tritonpy.cli.serve import serve
from tritonpy.cli.serve_flags import FLAGS, GROUPS
from tritonpy.options import ServerOptions

Read = Callable[..., ServerOptions]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Read:
    """Runs `corectl serve` up to the moment the server would start."""
    started: list[ServerOptions] = []
    usual_threshold = gc.get_threshold()

    def run(options: ServerOptions, *, gc_threshold: tuple[int, int, int]) -> int:
        assert gc_threshold == usual_threshold
        assert gc.get_threshold()[0] > usual_threshold[0]
        started.append(options)
        return 7

    server = ModuleType("tritonpy.server")
    server.run = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tritonpy.server", server)
    monkeypatch.setattr(sys, "setswitchinterval", lambda interval: None)

    def read(*arguments: str) -> ServerOptions:
        assert main(["serve", *arguments]) == 7
        assert gc.get_threshold() == usual_threshold
        return started.pop()

    return read


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["serve", *arguments]) == 1
    return capsys.readouterr().err


def test_without_options_everything_is_tritons_default(read: Read) -> None:
    assert read("--model-repository", "models") == ServerOptions(model_repositories=("models",))


def test_each_option_reaches_its_field(read: Read, tmp_path: Path) -> None:
    log = tmp_path / "server.log"

    options = read(
        "--model-repository=a",
        "--model-store=b",
        "--id=me",
        "--exit-timeout-secs=5",
        "--drain-delay-s=2.5",
        "--exit-on-error=false",
        "--strict-readiness=0",
        "--disable-auto-complete-config",
        "--model-control-mode=explicit",
        "--load-model=one",
        "--load-model=two",
        "--reload",
        "--backend-directory=/backends",
        "--backend-config=python,shm-default-byte-size=1",
        "--backend-config=default-max-batch-size=4",
        "--disable-plugin=backends:square",
        "--strategy-path-policy=strict",
        "--rate-limit=Execution_Count",
        "--rate-limit-resource=R:4",
        "--rate-limit-resource=S:2:1",
        "--allow-http=false",
        "--http-address=127.0.0.1",
        "--http-port=1",
        "--http-max-input-size=100",
        "--allow-grpc=off",
        "--grpc-address=127.0.0.2",
        "--grpc-port=2",
        "--allow-metrics=FALSE",
        "--metrics-address=127.0.0.3",
        "--metrics-port=3",
        "--allow-cpu-metrics=false",
        "--allow-gpu-metrics=0",
        "--metrics-interval-ms=500.5",
        "--metrics-config=summary_latencies=true",
        "--metrics-config=summary_quantiles=0.5:0.05,0.9:0.01",
        "--max-inflight-bytes=200",
        "--log-verbose=2",
        "--log-info=false",
        "--log-warning=false",
        "--log-error=false",
        "--log-format=json",
        f"--log-file={log}",
    )

    assert options == ServerOptions(
        model_repositories=("a", "b"),
        server_id="me",
        exit_timeout_s=5,
        drain_delay_s=2.5,
        exit_on_error=False,
        strict_readiness=False,
        auto_complete_config=False,
        model_control_mode="explicit",
        load_models=("one", "two"),
        reload=True,
        backend_directory="/backends",
        backend_config=(("python", "shm-default-byte-size", "1"), ("", "default-max-batch-size", "4")),
        disabled_plugins=(("backends", "square"),),
        strategy_path_policy="strict",
        rate_limit="execution_count",
        rate_limit_resources=(("R", 4, None), ("S", 2, 1)),
        allow_http=False,
        http_address="127.0.0.1",
        http_port=1,
        http_max_input_byte_size=100,
        allow_grpc=False,
        grpc_address="127.0.0.2",
        grpc_port=2,
        allow_metrics=False,
        metrics_address="127.0.0.3",
        metrics_port=3,
        allow_cpu_metrics=False,
        allow_gpu_metrics=False,
        metrics_interval_ms=500.5,
        metrics_config=("summary_latencies=true", "summary_quantiles=0.5:0.05,0.9:0.01"),
        max_inflight_byte_size=200,
        log_verbose=2,
        log_info=False,
        log_warning=False,
        log_error=False,
        log_format="json",
        log_file=str(log),
    )


def test_each_option_of_a_port_reaches_its_field(read: Read, tmp_path: Path) -> None:
    pem = tmp_path / "some.pem"
    pem.write_text("")

    options = read(
        "--model-repository=m",
        "--allow-client-shm=true",
        "--reuse-http-port=true",
        "--http-header-forward-pattern=^X-",
        "--http-restricted-api=health,metadata:key=a=b",
        "--http-restricted-api=inference:other=c",
        f"--https-certificate={pem}",
        f"--https-key={pem}",
        f"--https-client-ca={pem}",
        "--http-access-log=-",
        "--allow-trtis-v1=true",
        "--reuse-grpc-port=1",
        "--grpc-header-forward-pattern=(a|b)",
        "--grpc-restricted-protocol=logging:k:l=v",
        "--grpc-use-ssl=true",
        "--grpc-use-ssl-mutual=true",
        f"--grpc-server-cert={pem}",
        f"--grpc-server-key={pem}",
        f"--grpc-root-cert={pem}",
        "--grpc-infer-response-compression-level=medium",
        "--grpc-keepalive-time=1",
        "--grpc-keepalive-timeout=2",
        "--grpc-keepalive-permit-without-calls=true",
        "--grpc-http2-max-pings-without-data=3",
        "--grpc-http2-min-recv-ping-interval-without-data=4",
        "--grpc-http2-max-ping-strikes=5",
        "--grpc-max-connection-age=6",
        "--grpc-max-connection-age-grace=7",
        "--reuse-metrics-port=true",
    )

    assert options == ServerOptions(
        model_repositories=("m",),
        allow_client_shm=True,
        http_reuse_port=True,
        http_header_forward_pattern="^X-",
        http_restricted_apis=((("health", "metadata"), "key", "a=b"), (("inference",), "other", "c")),
        https_certificate=str(pem),
        https_key=str(pem),
        https_client_ca=str(pem),
        http_access_log="-",
        allow_trtis_v1=True,
        grpc_reuse_port=True,
        grpc_header_forward_pattern="(a|b)",
        grpc_restricted_protocols=((("logging",), "k:l", "v"),),
        grpc_use_ssl=True,
        grpc_use_ssl_mutual=True,
        grpc_server_cert=str(pem),
        grpc_server_key=str(pem),
        grpc_root_cert=str(pem),
        grpc_compression_level="medium",
        grpc_keepalive_time_ms=1,
        grpc_keepalive_timeout_ms=2,
        grpc_keepalive_permit_without_calls=True,
        grpc_http2_max_pings_without_data=3,
        grpc_http2_min_recv_ping_interval_without_data_ms=4,
        grpc_http2_max_ping_strikes=5,
        grpc_max_connection_age_ms=6,
        grpc_max_connection_age_grace_ms=7,
        metrics_reuse_port=True,
    )


def test_every_field_of_the_options_has_an_option() -> None:
    names = {param.name for param in serve.params}

    missing = {field.name for field in fields(ServerOptions)} - names
    assert missing == {"auto_complete_config"}  # which is --disable-auto-complete-config


def test_a_switch_without_a_value_is_true(read: Read) -> None:
    options = read(
        "--model-repository", "m", "--exit-on-error", "--log-verbose", "--strict-readiness", "false"
    )

    assert options.exit_on_error
    assert options.log_verbose == 1
    assert not options.strict_readiness


def test_metrics_are_served_where_http_is(read: Read) -> None:
    assert read("--model-repository=m", "--http-address=127.0.0.1").metrics_address == "127.0.0.1"


def test_strict_model_config_still_works_and_names_its_successor(
    read: Read, capsys: pytest.CaptureFixture[str]
) -> None:
    strict = read("--model-repository=m", "--strict-model-config=true")
    lax = read("--model-repository=m", "--strict-model-config=false")

    assert (strict.auto_complete_config, lax.auto_complete_config) == (False, True)
    assert "--disable-auto-complete-config" in capsys.readouterr().err


def test_the_log_is_written_while_the_server_runs(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import logging

    log = tmp_path / "server.log"
    run = sys.modules["tritonpy.server"].run

    def logging_run(options: ServerOptions, *, gc_threshold: tuple[int, int, int]) -> int:
        logging.getLogger("tritonpy.server").info("started")
        return int(run(options, gc_threshold=gc_threshold))

    monkeypatch.setattr(sys.modules["tritonpy.server"], "run", logging_run)
    read("--model-repository=m", f"--log-file={log}")

    assert '] "started"' in log.read_text()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "--model-repository must be specified"),
        (["--model-repository=m", "--no-such-option"], "unrecognized option '--no-such-option'"),
        (
            ["--model-repository=m", "--http-prt=1"],
            "unrecognized option '--http-prt'; did you mean --http-port",
        ),
        (
            ["--model-repositry=m"],
            "unrecognized option '--model-repositry'; did you mean --model-repository or ",
        ),
        (["--model-repository=m", "--http-port"], "Option '--http-port' requires an argument"),
        (["--model-repository=m", "surplus"], "unexpected extra argument (surplus)"),
        (
            ["--model-repository=m", "--allow-http=maybe"],
            'Bad option: "--allow-http". invalid value for bool option: maybe',
        ),
        (
            ["--model-repository=m", "--http-port=abc"],
            'Bad option: "--http-port". Invalid option value. Got abc',
        ),
        (["--model-repository=m", "--http-port=12x"], "Invalid option value. Got 12x"),
        (["--model-repository=m", "--http-port=70000"], "out of bound. Got 70000; expected 0 to 65535"),
        (["--model-repository=m", "--exit-timeout-secs=-1"], "out of bound. Got -1"),
        (["--model-repository=m", f"--exit-timeout-secs={10**30}"], "out of bound. Got 1000"),
        (["--model-repository=m", "--grpc-keepalive-time=1.5"], "Invalid option value. Got 1.5"),
        (["--model-repository=m", "--log-format=x"], "invalid argument for --log-format, got: x; expected"),
        (["--model-repository=m", "--log-verbose=loud"], "Invalid option value. Got loud; expected a number"),
        (
            ["--model-repository=m", "--backend-config=python"],
            "--backend-config option format is '<backend name>,",
        ),
        (["--model-repository=m", "--backend-config=,a=b"], "No backend specified. --backend-config option"),
        (["--model-repository=m", "--disable-plugin=square"], "expected KIND:NAME with KIND one of backends"),
        (["--model-repository=m", "--disable-plugin=wheels:a"], "expected KIND:NAME"),
        (["--model-repository=m", "--model-control-mode=x"], "invalid argument for --model-control-mode"),
        (
            ["--model-repository=m", "--load-model=a"],
            "Error: Use of '--load-model' requires setting '--model-control-mode=explicit' as well.",
        ),
        (
            ["--model-repository=m", "--allow-sagemaker=true"],
            "'--allow-sagemaker=true' is an option of tritonserver that is refused here: the SageMaker",
        ),
        (["--model-repository=m", "--log-file=/nowhere/x"], "cannot write '/nowhere/x'"),
        (
            ["--model-repository=m", "--http-port=8001"],
            "The server cannot listen to HTTP requests and GRPC requests at the same address and port "
            "0.0.0.0:8001;",
        ),
        (
            ["--model-repository=m", "--metrics-port=8000"],
            "The server cannot listen to HTTP requests and metrics requests at the same address and port",
        ),
    ],
)
def test_wrong_usage_is_named_and_ends_with_status_1(
    capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    error = refused(capsys, *arguments)

    assert error.startswith("Usage: corectl serve")
    assert text in error


@pytest.mark.parametrize(
    "arguments",
    [
        ["--http-port=8001", "--allow-grpc=false"],
        ["--http-port=8001", "--grpc-address=127.0.0.1"],
        ["--http-port=0", "--grpc-port=0", "--metrics-port=0"],
    ],
)
def test_services_that_do_not_meet_may_have_the_same_port(read: Read, arguments: list[str]) -> None:
    read("--model-repository=m", *arguments)


def test_show_config_prints_each_value_with_its_origin_and_starts_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = main(
        ["serve", "--model-repository=m", "--show-config", "--http-address=::1", "--backend-config=a,b=c"]
    )

    lines = [line.split(None, 2) for line in capsys.readouterr().out.splitlines()]
    assert status == 0
    assert ["--model-repository", "m", "command line"] in lines
    assert ["--http-address", "::1", "command line"] in lines
    assert ["--metrics-address", "::1", "--http-address"] in lines
    assert ["--backend-config", "a,b=c", "command line"] in lines
    assert ["--http-port", "8000", "default"] in lines
    assert ["--allow-grpc", "true", "default"] in lines
    assert len(lines) == sum(map(len, GROUPS.values())) - 1  # all but itself


def test_restrictions_of_files_go_beside_those_of_flags_and_are_not_shown(
    read: Read, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "keys"
    file.write_text("# who may load\nmodel-repository:key=sesame\n logging,trace:other=sesame=2\n")
    flags = ["--http-restricted-api=health:k=v", f"--http-restricted-api-file={file}"]

    options = read("--model-repository=m", *flags)
    assert main(["serve", "--model-repository=m", *flags, "--show-config"]) == 0

    assert options.http_restricted_apis == (
        (("health",), "k", "v"),
        (("model-repository",), "key", "sesame"),
        (("logging", "trace"), "other", "sesame=2"),
    )
    assert "sesame" not in capsys.readouterr().out


def test_a_server_without_patterns_needs_no_engine_for_them(
    read: Read, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)

    assert not read("--model-repository=m").http_header_forward_pattern
    assert "google-re2" in refused(capsys, "--model-repository=m", "--http-header-forward-pattern=x")


def test_every_kind_of_value_has_a_reader_and_every_reader_a_flag() -> None:
    given_by_hand = {"restriction file"}  # a file has options, and is none

    assert {flag.kind for flag in FLAGS.values()} - {"mark"} == set(READERS) - given_by_hand


def test_every_default_is_what_its_flag_reads_it_as() -> None:
    for field in fields(ServerOptions):
        if (
            field.name in FLAGS
            and not isinstance(field.default, (tuple, bool))
            and field.default is not MISSING
        ):
            assert value_type(FLAGS[field.name])(field.default) == field.default, field.name


def test_settings_of_one_cache_come_together(read: Read) -> None:
    settings = read(
        "--model-repository=m",
        "--cache-config=redis,host=example.org",
        "--cache-config=redis,key_prefix=a=b,c",
        "--cache-directory=/caches",
        "--cache-timeout-ms=20",
    )

    assert settings.cache_config == (("redis", "host", "example.org"), ("redis", "key_prefix", "a=b,c"))
    assert (settings.cache_directory, settings.cache_timeout_ms) == ("/caches", 20)


def test_a_password_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    main(
        [
            *("serve", "--model-repository=m", "--show-config"),
            *("--cache-config=redis,host=h", "--cache-config=redis,password=hush"),
        ]
    )

    shown = capsys.readouterr().out
    assert "redis,host=h redis,password=***" in shown
    assert "hush" not in shown


def test_the_old_option_for_a_cache_is_a_size_of_the_local_one(
    read: Read, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = read("--model-repository=m", "--response-cache-byte-size=1048576")

    assert settings.cache_config == (("local", "size", "1048576"),)
    assert "use --cache-config local,size=BYTES" in capsys.readouterr().err
    assert read("--model-repository=m", "--response-cache-byte-size=0").cache_config == ()
