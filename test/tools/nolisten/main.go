//go:build linux

// Command nolisten runs a program that must not be reachable from the network.
//
//	nolisten PROGRAM [ARGUMENT...]
//
// It replaces itself by PROGRAM under a seccomp filter in which listen(2) reports
// success and does nothing, and accept(2) reports that no one has called yet. The
// program runs on, its port stays closed.
//
// The harness needs it for Argo CD's application controller, whose metrics server
// always listens on every address of the machine and ends the controller when it
// cannot. Tests and demo run stock servers and open no port beyond loopback.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A parent-death signal belongs to the thread that received it, and a thread that
// executes a program keeps only its own. So everything happens on the first thread.
func init() { //nolint:gochecknoinits // only here the first thread is certain
	runtime.LockOSThread()
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "nolisten:", err)
		os.Exit(1)
	}
}

// run returns only when the program could not be started.
func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("usage: nolisten PROGRAM [ARGUMENT...]")
	}
	program, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	if err := install(filter()); err != nil {
		return err
	}
	return fmt.Errorf("run %s: %w", program, syscall.Exec(program, args, os.Environ()))
}

// auditArch maps GOARCH to the architecture the kernel names in seccomp data.
var auditArch = map[string]uint32{
	"amd64": unix.AUDIT_ARCH_X86_64,
	"arm64": unix.AUDIT_ARCH_AARCH64,
}

// Offsets in struct seccomp_data (linux/seccomp.h).
const (
	offsetNumber = 0
	offsetArch   = 4
)

// filter returns the BPF program. It allows every call of a foreign architecture,
// since system call numbers differ there; nothing we start makes one.
func filter() []unix.SockFilter {
	const (
		load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		ret   = unix.BPF_RET | unix.BPF_K
	)
	return []unix.SockFilter{
		{Code: load, K: offsetArch},
		{Code: equal, K: auditArch[runtime.GOARCH], Jf: 4},
		{Code: load, K: offsetNumber},
		{Code: equal, K: unix.SYS_LISTEN, Jt: 3},
		{Code: equal, K: unix.SYS_ACCEPT, Jt: 3},
		{Code: equal, K: unix.SYS_ACCEPT4, Jt: 2},
		{Code: ret, K: unix.SECCOMP_RET_ALLOW},
		{Code: ret, K: unix.SECCOMP_RET_ERRNO}, // errno 0: success
		{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EAGAIN)},
	}
}

// install puts the filter on the calling thread; an executed program inherits it.
func install(program []unix.SockFilter) error {
	if _, known := auditArch[runtime.GOARCH]; !known {
		return fmt.Errorf("no seccomp filter for %s", runtime.GOARCH)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return fmt.Errorf("install seccomp filter: %w", errno)
	}
	return nil
}
