//go:build tools

// Package tools names etcd's server, which `go install` refuses because its go.mod replaces modules.
package tools

import _ "go.etcd.io/etcd/server/v3"
