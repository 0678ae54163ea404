package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// volumes are tmpfs in a directory of the machine, whose root directory is mounted at `root`. They are there until
// the machine stops. The machine's own programs mount them, so that the mounts are where kubelet sees them.
type volumes struct {
	root      string
	directory string
}

// path is where a volume is mounted on the machine, whoever uses it.
func (v *volumes) path(id string) string {
	return filepath.Join(v.directory, filepath.Base(id))
}

// run runs a program of the machine.
func (v *volumes) run(name string, arguments ...string) error {
	command := exec.Command("/bin/sh", append([]string{"-c", `exec "$@"`, "sh", name}, arguments...)...)
	command.SysProcAttr = &syscall.SysProcAttr{Chroot: v.root}
	command.Dir = "/"
	command.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	if printed, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(arguments, " "), err, printed)
	}
	return nil
}

func (v *volumes) isMounted(path string) bool {
	return v.run("mountpoint", "--quiet", path) == nil
}

// mount mounts something at a path, unless there is something.
func (v *volumes) mount(path string, arguments ...string) error {
	if v.isMounted(path) {
		return nil
	}
	if err := v.run("mkdir", "--parents", path); err != nil {
		return err
	}
	return v.run("mount", append(arguments, path)...)
}

// unmount undoes mount, as far as it is not undone.
func (v *volumes) unmount(path string) error {
	if v.isMounted(path) {
		if err := v.run("umount", path); err != nil {
			return err
		}
	}
	if err := os.Remove(filepath.Join(v.root, path)); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

func (v *volumes) create(id string, sizeBytes int64) error {
	return v.mount(v.path(id), "-t", "tmpfs", "-o", fmt.Sprintf("size=%d,mode=0755", sizeBytes), driverName)
}

func (v *volumes) remove(id string) error {
	return v.unmount(v.path(id))
}

func (v *volumes) publish(id, target string) error {
	return v.mount(target, "--bind", v.path(id))
}

// grow enlarges a volume while it is used.
func (v *volumes) grow(id string, sizeBytes int64) error {
	var found syscall.Statfs_t
	if err := syscall.Statfs(filepath.Join(v.root, v.path(id)), &found); err != nil {
		return err
	}
	if int64(found.Blocks)*found.Bsize >= sizeBytes {
		return nil
	}
	return v.run("mount", "-o", fmt.Sprintf("remount,size=%d", sizeBytes), v.path(id))
}
