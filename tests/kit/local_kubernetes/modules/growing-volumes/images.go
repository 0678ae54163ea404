package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// images are files with file systems in a directory of the machine, whose root directory is mounted at `root`. The
// machine's own programs mount them, so that the mounts are where kubelet sees them.
type images struct {
	root      string
	directory string
}

func (i *images) path(id string) string {
	return filepath.Join(i.directory, filepath.Base(id)+".img")
}

// run runs a program of the machine and returns what it prints.
func (i *images) run(name string, arguments ...string) (string, error) {
	command := exec.Command("/bin/sh", append([]string{"-c", `exec "$@"`, "sh", name}, arguments...)...)
	command.SysProcAttr = &syscall.SysProcAttr{Chroot: i.root}
	command.Dir = "/"
	command.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	printed, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(arguments, " "), err, printed)
	}
	return strings.TrimSpace(string(printed)), nil
}

// create makes a file system, unless there is one.
func (i *images) create(id string, sizeBytes int64) error {
	if _, err := os.Stat(filepath.Join(i.root, i.path(id))); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(i.root, i.directory), 0o700); err != nil {
		return err
	}
	unfinished := i.path(id) + ".new"
	if _, err := i.run("truncate", "--size="+strconv.FormatInt(sizeBytes, 10), unfinished); err != nil {
		return err
	}
	if _, err := i.run("mkfs.ext4", "-q", "-F", unfinished); err != nil {
		return err
	}
	return os.Rename(filepath.Join(i.root, unfinished), filepath.Join(i.root, i.path(id)))
}

func (i *images) remove(id string) error {
	err := os.Remove(filepath.Join(i.root, i.path(id)))
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

// mount mounts a file system by a loop device, which goes when it is unmounted.
func (i *images) mount(id, target string) error {
	if i.isMounted(target) {
		return nil
	}
	if _, err := i.run("mkdir", "--parents", target); err != nil {
		return err
	}
	_, err := i.run("mount", "-o", "loop", i.path(id), target)
	return err
}

func (i *images) unmount(target string) error {
	if i.isMounted(target) {
		if _, err := i.run("umount", target); err != nil {
			return err
		}
	}
	err := os.Remove(filepath.Join(i.root, target))
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

func (i *images) isMounted(target string) bool {
	_, err := i.run("mountpoint", "--quiet", target)
	return err == nil
}

// grow enlarges file, loop device and file system, while it is mounted.
func (i *images) grow(id string, sizeBytes int64) error {
	if _, err := i.run("truncate", "--size=>"+strconv.FormatInt(sizeBytes, 10), i.path(id)); err != nil {
		return err
	}
	devices, err := i.run("losetup", "--noheadings", "--output=NAME", "--associated", i.path(id))
	if err != nil {
		return err
	}
	for _, device := range strings.Fields(devices) {
		if _, err := i.run("losetup", "--set-capacity", device); err != nil {
			return err
		}
		if _, err := i.run("resize2fs", device); err != nil {
			return err
		}
	}
	return nil
}
