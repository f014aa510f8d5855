//go:build linux

// Command environments runs another command, such as go test of several packages of
// end-to-end tests, and serves the environments that their tests share: one of each kind for
// all packages, started for the first test that asks for it and ended after the command. It
// ends with the exit code of the command.
//
//	go run ./test/e2e/environments go test ./test/e2e/...
//
// Without it each package starts its own.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness/broker"
)

func main() {
	klog.SetLogger(logr.Discard())
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: environments COMMAND [ARGUMENT]...")
		os.Exit(2)
	}
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "environments:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// run returns the exit code of the command.
func run(argv []string) (code int, err error) {
	dir, err := os.MkdirTemp("", "argomesh-broker-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	socket := filepath.Join(dir, "socket")
	// An interrupt at the terminal is for the command, whose end ends this program.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l, err := new(net.ListenConfig).Listen(ctx, "unix", socket)
	if err != nil {
		return 1, err
	}
	served := make(chan error, 1)
	go func() { served <- env.Serve(ctx, l) }()

	cmd := exec.Command(argv[0], argv[1:]...) //nolint:gosec,noctx // the caller's own command, to its end
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), broker.Variable+"="+socket)
	err = cmd.Run()
	cancel()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code, err = max(exit.ExitCode(), 1), nil
	}
	return code, errors.Join(err, <-served)
}
