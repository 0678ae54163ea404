//go:build tools

// Package tools names the provisioner of volumes, which `go install` refuses because its go.mod replaces modules.
package tools

import _ "github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner"
