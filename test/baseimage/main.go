// Command baseimage runs a command, such as ko, while it serves the image that ours are
// built on, and names that in the command's environment as KO_DEFAULTBASEIMAGE:
//
//	go run ./test/baseimage ko build ./cmd/agent
//
// So images are built without Docker and without a registry. The image holds the CA
// certificates of this machine, a user and a group that are not root (65532), and /tmp;
// there is no shell and no library. It is named by its digest, and served to this machine only, on loopback, as
// long as the command runs. The same certificates make the same image.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// environment tells ko its base image.
const environment = "KO_DEFAULTBASEIMAGE"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], bundles)
	stop()
	var failed *exec.ExitError
	switch {
	case errors.As(err, &failed) && failed.Exited():
		os.Exit(failed.ExitCode()) // it has said why
	case err != nil:
		fmt.Fprintln(os.Stderr, "baseimage:", err)
		os.Exit(1)
	}
}

// run serves the image until the command line has ended, or ctx: then the command is asked
// to end. The certificates are those of the first of some files that is there.
func run(ctx context.Context, line, certificates []string) (err error) {
	if len(line) == 0 {
		return errors.New("usage: go run ./test/baseimage COMMAND [ARGUMENT...]")
	}
	authorities, err := readFirst(certificates)
	if err != nil {
		return err
	}
	base, err := build(authorities)
	if err != nil {
		return err
	}
	registry, err := serve(base)
	if err != nil {
		return err
	}
	digest, err := base.Digest()
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: registry, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	defer func() {
		err = errors.Join(err, server.Close())
		if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
	}()
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), environment+"="+l.Addr().String()+"/"+repository+"@"+digest.String())
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd.Run()
}

// bundles are where distributions have the certificates of authorities.
var bundles = []string{
	"/etc/ssl/certs/ca-certificates.crt", // Debian, Alpine
	"/etc/pki/tls/certs/ca-bundle.crt",   // Fedora
	"/etc/ssl/ca-bundle.pem",             // SUSE
	"/etc/ssl/cert.pem",                  // macOS, BSD
}

func readFirst(files []string) ([]byte, error) {
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err == nil || !errors.Is(err, os.ErrNotExist) {
			return content, err
		}
	}
	return nil, fmt.Errorf("this machine has no certificates of authorities: there is none of %v", files)
}
