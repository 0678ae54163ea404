"""Brokers that clients outside reach: by balancers, ports of machines and certificates, all of which may change."""

import base64
import subprocess
from pathlib import Path

from kit.operators.operated import BROKERS, CONTROLLERS_FIRST, Operated, forwarded
from quorate_operator.models.secrets import FOR_LISTENERS
from quorate_operator.planning.cluster import Address

EXTERNAL = "EXTERNAL"
EXTERNAL_PORT = 9094
SERVICE, OUTER_BOOTSTRAP = f"{BROKERS}-0-external", f"{BROKERS}-bootstrap-external"
# A Secret that changed is seen within half a minute.
ROTATION_TIMEOUT_S = 180


def test_the_address_of_a_balancer_is_told_to_clients(brokered: Operated) -> None:
    """A broker starts when its load balancer has an address, advertises that, and is restarted for another one."""
    operated = brokered
    operated.create()
    operated.create_brokers(listeners=_listeners(operated, exposure={"type": "LoadBalancer"}))
    operated.start_operator()
    _wait_not_ready(operated, "AddressNotAssigned", f"an address of the load balancer {SERVICE}")
    assert f"{BROKERS}-0" not in operated.pods()
    found = operated.core.read_namespaced_service(SERVICE, operated.namespace)
    assert found.spec.type == "LoadBalancer"
    pods = set()
    for place in (1, 2):
        address = Address(f"{_outside(operated)}.{place}", EXTERNAL_PORT)
        with forwarded([(address, _listening(operated))]):
            _give_addresses(operated, SERVICE, address.host)
            operated.wait(
                lambda expected=str(address): _advertised(operated) == expected, f"{address} to be advertised"
            )
            operated.wait(lambda: operated.brokers_settled(0), "nothing to be left")
            pods.add(_pod_uid(operated))
        (expected,) = [
            listener_status
            for listener_status in _listener_statuses(operated)
            if listener_status["name"] == EXTERNAL
        ]
        assert (expected["type"], expected["bootstrapServers"]) == ("LoadBalancer", str(address))
    assert len(pods) == 2
    internal = _listener_statuses(operated)[0]
    host, _, port = internal["bootstrapServers"].rpartition(":")
    assert host == f"{BROKERS}-bootstrap.{operated.namespace}.svc"
    bootstrap = operated.core.read_namespaced_service(f"{BROKERS}-bootstrap", operated.namespace)
    assert int(port) in {port.port for port in bootstrap.spec.ports}
    selector = ",".join(f"{name}={value}" for name, value in bootstrap.spec.selector.items())
    pods_led_to = operated.core.list_namespaced_pod(operated.namespace, label_selector=selector).items
    assert [pod.metadata.name for pod in pods_led_to] == [f"{BROKERS}-0"]
    (stop,) = operated.events("StopNode")
    assert f"-> {_outside(operated)}.2" in stop


def test_an_address_is_verified_as_the_manifest_says(brokered: Operated) -> None:
    """A load balancer may not let the operator in, and may have addresses of both families in any order."""
    operated = brokered
    operated.create()
    exposure = {"type": "LoadBalancer", "sourceRanges": ["203.0.113.0/24"]}
    operated.create_brokers(listeners=_listeners(operated, exposure=exposure))
    operated.start_operator()
    first, second = (Address(f"{_outside(operated)}.{place}", EXTERNAL_PORT) for place in (3, 4))
    operated.wait(lambda: _has_service(operated, SERVICE), "the Service")
    with forwarded([(first, _listening(operated))]):
        _give_addresses(operated, SERVICE, "2001:db8::7", first.host)
        operated.wait(lambda: operated.brokers_settled(0), "the broker to be ready with its address")
        assert _advertised(operated) == str(first)
        before = _pod_uid(operated)
        _give_addresses(operated, SERVICE, first.host, "2001:db8::7")
        _give_addresses(operated, SERVICE, first.host, second.host)
        # A Service that changed is seen at once; a change after it shows that it led to nothing.
        _give_addresses(operated, SERVICE, second.host)
        _wait_not_ready(operated, "AddressNotVerified", f"{second} to reach broker-0")
    assert (_advertised(operated), _pod_uid(operated)) == (str(first), before)
    operated.patch_brokers(listeners=_listeners(operated, exposure={**exposure, "verification": "None"}))
    operated.wait(lambda: _advertised(operated) == str(second), f"{second} to be advertised")
    operated.wait(lambda: operated.brokers_settled(0), "nothing to be left")
    assert len(operated.events("StopNode")) == 1


def test_an_address_that_leads_to_another_node_is_reported(brokered: Operated) -> None:
    operated = brokered
    operated.create()
    operated.create_brokers(listeners=_listeners(operated, exposure={"type": "LoadBalancer"}))
    operated.start_operator()
    address = Address(f"{_outside(operated)}.5", EXTERNAL_PORT)
    operated.wait(lambda: _has_service(operated, SERVICE), "the Service")
    with forwarded([(address, _listening(operated))]):
        _give_addresses(operated, SERVICE, address.host)
        operated.wait(lambda: operated.brokers_settled(0), "the broker to be ready with its address")
    (other,) = operated.led_to(_outside(operated), [CONTROLLERS_FIRST])
    with forwarded([(address, other[1])]):
        _wait_not_ready(operated, "AddressMisrouted", f"node {CONTROLLERS_FIRST} answers there now")
        assert operated.brokers_condition("Stalled")["reason"] == "AddressMisrouted"
        assert (operated.brokers() or {})["status"]["plan"]
        assert operated.condition("Ready")["status"] == "True"
    with forwarded([(address, _listening(operated))]):
        operated.wait(lambda: operated.brokers_settled(0), "nothing to be left")
    assert not operated.events("StopNode")


def test_the_port_of_a_machine_is_told_to_clients(brokered: Operated) -> None:
    operated = brokered
    operated.create()
    operated.create_brokers(listeners=_listeners(operated, exposure={"type": "NodePort"}))
    operated.start_operator()
    _wait_not_ready(operated, "AddressNotVerified", f"{operated.agent.machine_address}:")
    (port,) = operated.core.read_namespaced_service(SERVICE, operated.namespace).spec.ports
    address = Address(operated.agent.machine_address, port.node_port)
    with forwarded([(address, _listening(operated))]):
        operated.wait(lambda: _advertised(operated) == str(address), f"{address} to be told to clients")
        operated.wait(lambda: operated.brokers_settled(0), "nothing to be left")
        config = operated.core.read_namespaced_config_map(f"{BROKERS}-0", operated.namespace)
        assert config.metadata.annotations["quorate.dev/host-ip"] == operated.agent.machine_address
        _set_services(operated, _pod_uid(operated), port.node_port)
        operated.patch_brokers(listeners=[operated.internal_listener()])
        operated.wait(lambda: operated.brokers_settled(0), "the listener to be gone")
    services = operated.core.list_namespaced_service(operated.namespace).items
    assert not {SERVICE, OUTER_BOOTSTRAP} & {service.metadata.name for service in services}


def _set_services(operated: Operated, pod_uid: str, node_port: int) -> None:
    """Settings of Services reach them, and restart no broker."""
    exposure = {
        "type": "NodePort",
        "externalTrafficPolicy": "Cluster",
        "ipFamilyPolicy": "PreferDualStack",
        "annotations": {"team": "orders"},
        "nodes": [{"nodeId": 0, "nodePort": node_port, "externalIPs": ["198.51.100.7"]}],
        "bootstrap": {},
    }
    operated.patch_brokers(listeners=_listeners(operated, exposure=exposure))
    operated.wait(lambda: _has_service(operated, OUTER_BOOTSTRAP), "the bootstrap Service")
    (port,) = operated.core.read_namespaced_service(OUTER_BOOTSTRAP, operated.namespace).spec.ports
    expected = f"{operated.agent.machine_address}:{port.node_port}"
    operated.wait(
        lambda: _listener_statuses(operated)[1].get("bootstrapServers") == expected,
        "the address in the status",
    )
    operated.wait(lambda: operated.brokers_settled(0), "nothing to be left")
    service = operated.core.read_namespaced_service(SERVICE, operated.namespace)
    assert service.spec.external_traffic_policy == "Cluster"
    assert service.spec.ip_families == ["IPv4", "IPv6"]
    assert service.spec.external_ips == ["198.51.100.7"]
    assert service.metadata.annotations["team"] == "orders"
    assert [port.node_port for port in service.spec.ports] == [node_port]
    assert _pod_uid(operated) == pod_uid


def test_certificates_are_mounted_missed_and_rotated(brokered: Operated, tmp_path: Path) -> None:
    """A missing Secret is reported by its field and stops no node; a changed one rolls the brokers."""
    operated = brokered
    operated.create()
    listeners = _listeners(operated, protocol="SSL", tls={"secretName": "outside"})
    operated.create_brokers(listeners=listeners)
    operated.start_operator()
    _wait_reported(operated, "spec.listeners[1].tls.secretName: 'outside': no such Secret")
    operated.wait(lambda: operated.events("SecretMissing"), "the Event, which follows the condition")
    _put_secret(operated, _certificate(tmp_path, "first") | {"tls.key": None})
    _wait_reported(operated, "has no tls.key")
    assert f"{BROKERS}-0" not in operated.pods()

    _put_secret(operated, _certificate(tmp_path, "first"))
    operated.wait(lambda: operated.brokers_settled(0), "the broker to be ready")
    before = _pod_uid(operated)
    assert operated.brokers_condition("Stalled")["status"] == "False"

    _put_secret(operated, _certificate(tmp_path, "second"))
    operated.wait(
        lambda: operated.brokers_settled(0) and _pod_uid(operated) != before,
        "the broker to be restarted",
        ROTATION_TIMEOUT_S,
    )
    assert operated.events("StopNode")[-1] == "broker-0: Secret outside: content changed"

    before = _pod_uid(operated)
    operated.core.delete_namespaced_secret("outside", operated.namespace)
    _wait_reported(operated, "no such Secret", ROTATION_TIMEOUT_S)
    assert operated.brokers_condition("Ready")["status"] == "True"
    assert _pod_uid(operated) == before


def _listeners(operated: Operated, **spec: object) -> list[dict[str, object]]:
    external = {"name": EXTERNAL, "port": EXTERNAL_PORT, **spec}
    if "tls" in spec:
        external["advertisedHost"] = operated.internal_listener()["advertisedHost"]
    return [operated.internal_listener(), external]


def _outside(operated: Operated) -> str:
    """A network without pods."""
    return operated.network.rsplit(".", 1)[0] + ".252"


def _listening(operated: Operated) -> Address:
    """Where broker 0 listens for clients outside."""
    return Address(operated.agent.address_of(f"{BROKERS}-0"), EXTERNAL_PORT)


def _has_service(operated: Operated, name: str) -> bool:
    services = operated.core.list_namespaced_service(operated.namespace).items
    return name in {service.metadata.name for service in services}


def _wait_not_ready(operated: Operated, reason: str, message: str) -> None:
    def found() -> bool:
        ready = operated.brokers_condition("Ready")
        return (ready.get("status"), ready.get("reason")) == ("False", reason) and message in ready["message"]

    operated.wait(found, f"Ready=False with {reason}: {message}")


def _give_addresses(operated: Operated, service: str, *hosts: str) -> None:
    status = {"status": {"loadBalancer": {"ingress": [{"ip": host} for host in hosts]}}}
    operated.core.patch_namespaced_service_status(service, operated.namespace, status)


def _advertised(operated: Operated) -> str | None:
    """What the broker is registered with for clients outside."""
    (broker,) = (operated.brokers() or {})["status"]["brokers"]
    reported = broker.get("advertised", {}).get(EXTERNAL)
    return str(reported) if reported else None


def _listener_statuses(operated: Operated) -> list[dict[str, str]]:
    """What the status of the pool says of its listeners."""
    listeners: list[dict[str, str]] = (operated.brokers() or {})["status"]["listeners"]
    return listeners


def _pod_uid(operated: Operated) -> str:
    return str(operated.core.read_namespaced_pod(f"{BROKERS}-0", operated.namespace).metadata.uid)


def _wait_reported(operated: Operated, message: str, timeout_s: float = 60) -> None:
    operated.wait(
        lambda: message in operated.brokers_condition("Stalled").get("message", ""), message, timeout_s
    )


def _certificate(directory: Path, name: str) -> dict[str, str | None]:
    """The data of a Secret of type kubernetes.io/tls, as Kubernetes has it."""
    key, certificate = directory / f"{name}.key", directory / f"{name}.crt"
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
            ),
            *("-days", "2", "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return {
        "tls.crt": base64.b64encode(certificate.read_bytes()).decode(),
        "tls.key": base64.b64encode(key.read_bytes()).decode(),
    }


def _put_secret(operated: Operated, data: dict[str, str | None]) -> None:
    metadata = {"name": "outside", "labels": {FOR_LISTENERS: "true"}}
    body = {"metadata": metadata, "data": {key: text for key, text in data.items() if text}}
    names = {item.metadata.name for item in operated.core.list_namespaced_secret(operated.namespace).items}
    if "outside" in names:
        operated.core.replace_namespaced_secret("outside", operated.namespace, body)
    else:
        operated.core.create_namespaced_secret(operated.namespace, body)
