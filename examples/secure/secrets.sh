#!/bin/sh
# The Secrets of examples/secure.yaml and examples/production.yaml: certificates by openssl, and random passwords.
#   examples/secure/secrets.sh DIRECTORY [NAMESPACE]
# DIRECTORY/secrets.yaml is for `kubectl apply -f` and `quorate play -f`. Everything in DIRECTORY is secret: keep it out of
# version control. Their label lets nodes read them. A second run makes new certificates of the same authority, and keeps
# the passwords.
set -eu
umask 077
directory=${1:?"usage: $0 DIRECTORY [NAMESPACE]"}
namespace=${2:-default}
mkdir -p "$directory"
cd "$directory"

key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1" 2>/dev/null; }
indented() { sed 's/^/    /' "$1"; }

if [ ! -e ca.key ]; then
  key ca.key
  openssl req -x509 -key ca.key -days 3650 -subj "/CN=Quorate example CA" \
    -addext keyUsage=critical,keyCertSign,cRLSign -out ca.crt
fi

# Nodes and clients check names: on Kubernetes POD.POOL.NAMESPACE.svc and POOL-bootstrap.NAMESPACE.svc, in `quorate play` 127.0.0.1.
certificate() { # SECRET POOL
  key "$1.key"
  openssl req -new -key "$1.key" -subj "/CN=$2" -out "$1.csr"
  cat > "$1.ext" <<EXTENSIONS
subjectAltName=DNS:*.$2.$namespace.svc,DNS:*.$2.$namespace.svc.cluster.local,DNS:$2-bootstrap.$namespace.svc,\
DNS:$2-bootstrap.$namespace.svc.cluster.local,DNS:localhost,IP:127.0.0.1
basicConstraints=critical,CA:FALSE
extendedKeyUsage=serverAuth,clientAuth
EXTENSIONS
  openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -extfile "$1.ext" \
    -out "$1.crt" 2>/dev/null
  cat <<SECRET
---
apiVersion: v1
kind: Secret
metadata: {name: $1, labels: {quorate.dev/for-listeners: "true"}}
type: kubernetes.io/tls
stringData:
  tls.crt: |
$(indented "$1.crt")
  tls.key: |
$(indented "$1.key")
  ca.crt: |
$(indented ca.crt)
SECRET
}

users() { # SECRET USER...
  printf -- '---\napiVersion: v1\nkind: Secret\nmetadata: {name: %s, labels: {quorate.dev/for-listeners: "true"}}\n' "$1"
  printf 'type: Opaque\nstringData:\n'
  shift
  for user in "$@"; do
    [ -e "$user.password" ] || openssl rand -hex 20 > "$user.password"
    printf '  %s: "%s"\n' "$user" "$(cat "$user.password")"
  done
}

{
  echo "# Written by examples/secure/secrets.sh. Keep it secret."
  certificate controllers-tls quorum
  certificate brokers-tls brokers
  users controllers-login node
  users users broker admin alice bob
} > secrets.yaml.new
mv secrets.yaml.new secrets.yaml
