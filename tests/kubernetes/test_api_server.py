"""The control plane that other tests rely on is what they take it for."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import kubernetes.client
import psutil
import pytest
from kit.cluster import free_ports
from kit.local_kubernetes.api_server import PORTS, ApiServer
from kit.waiting import eventually
from kubernetes.client import ApiException

POD = {
    "metadata": {"name": "privileged"},
    "spec": {"containers": [{"name": "c", "image": "i", "securityContext": {"privileged": True}}]},
}


def test_pods_that_are_not_restricted_are_refused(
    api_client: kubernetes.client.ApiClient, namespace: str
) -> None:
    with pytest.raises(ApiException) as refused:
        kubernetes.client.CoreV1Api(api_client).create_namespaced_pod(namespace, POD)
    assert refused.value.status == 403
    assert 'violates PodSecurity "restricted:latest"' in json.loads(refused.value.body)["message"]


def test_a_service_account_may_do_what_rbac_grants(api_server: ApiServer, namespace: str) -> None:
    kubeconfig = api_server.kubeconfig_of(namespace, "reader")
    with api_server.client() as admin, api_server.client(kubeconfig) as reader:
        pods = kubernetes.client.CoreV1Api(reader)
        with pytest.raises(ApiException) as refused:
            pods.list_namespaced_pod(namespace)
        assert refused.value.status == 403
        rbac = kubernetes.client.RbacAuthorizationV1Api(admin)
        rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
        rbac.create_namespaced_role(namespace, {"metadata": {"name": "reader"}, "rules": [rule]})
        subject = {"kind": "ServiceAccount", "name": "reader", "namespace": namespace}
        binding = {
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [subject],
        }
        rbac.create_namespaced_role_binding(namespace, binding)
        eventually(lambda: _may_list(pods, namespace), 10, "the authorizer to see the role")


def _may_list(pods: kubernetes.client.CoreV1Api, namespace: str) -> bool:
    try:
        return pods.list_namespaced_pod(namespace).items == []
    except ApiException:
        return False


_HOLD = """
import os
import sys
from pathlib import Path
from kit.local_kubernetes.api_server import ApiServer, find_programs
server = ApiServer(find_programs(os.environ), Path(sys.argv[1]), int(sys.argv[2]))
print(server.pid, flush=True)
sys.stdin.read()
"""


def test_a_killed_run_leaves_no_process(api_server: ApiServer, tmp_path: Path) -> None:
    assert api_server.programs.kubectl is None or api_server.programs.kubectl.is_file()
    tests = Path(__file__).parents[1]
    command = [sys.executable, "-c", _HOLD, f"{tmp_path}", f"{free_ports(PORTS)}"]
    with subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": f"{tests}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip().isdigit()
        servers = psutil.Process(holder.pid).children(recursive=True)
        assert len(servers) == 2
        holder.send_signal(signal.SIGKILL)
    gone, alive = psutil.wait_procs(servers, timeout=10)
    assert len(gone) == 2
    assert alive == []
