"""Write what is made of something else: `python deploy/render.py [HELM]`.

`manifests/` of the Helm chart, for clusters without Helm, and `envoy/` by `corectl cluster envoy`. Tests fail
when they differ from what this writes.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

DEPLOY = Path(__file__).resolve().parent
CHART = DEPLOY / "helm/tritonpy"
IMAGE = "tritonserver"  # as `corectl compose` calls it; kustomize puts another in its place

_OF_HELM = re.compile(
    r"^ *(app\.kubernetes\.io/managed-by|helm\.sh/chart): .*\n|^# Source: .*\n", re.MULTILINE
)
_HEADER = "# Made of the Helm chart by deploy/render.py.\n"


def manifests(helm: str) -> dict[Path, str]:
    """The text of every file, by its path.

    Args:
        helm: the program.
    """
    router = ("--set=router.enabled=true", "--show-only=templates/router.yaml")
    return {
        DEPLOY / "manifests/servers/tritonpy.yaml": _rendered(helm),
        DEPLOY / "manifests/router/router.yaml": _rendered(helm, *router),
    }


def envoy() -> dict[Path, str]:
    """Envoy before the servers of a release that is called tritonpy: both protocols on one port."""
    options = "--servers-name tritonpy-headless --http-port 8000 --grpc-port 8000 --admin-port 9901"
    command = [sys.executable, "-m", "tritonpy.cli.main", "cluster", "envoy", *options.split()]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    _, _, rest = text.partition("\n")
    head = f"# Before the servers of a release called tritonpy; made by corectl cluster envoy {options}\n"
    return {DEPLOY / "envoy/envoy.yaml": head + rest}


def _rendered(helm: str, *options: str) -> str:
    # Without a namespace kustomize gives one to all, the subjects of role bindings among them.
    command = [helm, "template", "tritonpy", str(CHART), f"--set=image.repository={IMAGE}", *options]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return _HEADER + _OF_HELM.sub("", text)


if __name__ == "__main__":
    made = envoy() | manifests(sys.argv[1] if len(sys.argv) > 1 else "helm")
    for path, text in made.items():
        path.write_text(text)
        print(path.relative_to(DEPLOY.parent))
