"""What is built, and in which version; one place, because they have to fit together."""

KUBERNETES = "1.34.2"  # 1.35 refuses cgroup v1, which small test machines still have
HELM = "3.22.0"
KIND = "0.33.0"
COREDNS = "1.12.1"  # the one that kubeadm 1.34 asks for
LOCAL_PATH_PROVISIONER = "0.0.30"
CSI_RESIZER = "2.3.0"  # needs Go 1.26, and so does the provisioner of `modules/csi-provisioner`
ACTIONLINT = "1.7.7"  # checks .github/workflows
GO_MIN = (1, 24)
