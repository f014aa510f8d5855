//go:build linux

package harness_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"testing"

	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/tools/toolset"
)

// The test program plays the processes that the tests start, by its environment.
const (
	roleVariable = "HARNESS_TEST_ROLE"
	dirVariable  = "HARNESS_TEST_DIR"
)

func TestMain(m *testing.M) {
	roles := map[string]func() error{
		"":         func() error { os.Exit(m.Run()); return nil },
		"owner":    playOwner,
		"idle":     playIdle,
		"stubborn": playStubborn,
		"failing":  playFailing,
		"listener": playListener,
		"parent":   playParent,
		"udp":      playUDP,
	}
	if err := roles[os.Getenv(roleVariable)](); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

// playOwner starts an idle process in a harness, says so, and waits to be killed.
func playOwner() error {
	tools, err := toolset.Open()
	if err != nil {
		return err
	}
	h, err := harness.New(harness.Config{Dir: os.Getenv(dirVariable), Tools: tools})
	if err != nil {
		return err
	}
	p, err := h.Start(context.Background(), role("idle"))
	if err != nil {
		return err
	}
	fmt.Println(p.PID())
	select {}
}

// playIdle ends on SIGTERM.
func playIdle() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	fmt.Println("ready")
	<-ctx.Done()
	return nil
}

// playStubborn ends on SIGKILL only.
func playStubborn() error {
	signal.Ignore(syscall.SIGTERM)
	fmt.Println("ready")
	select {}
}

func playFailing() error {
	return fmt.Errorf("cannot open the pod bay doors")
}

// playListener accepts connections on all addresses, if it is let.
func playListener() error {
	l, err := net.Listen("tcp4", "0.0.0.0:"+os.Getenv(dirVariable))
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		if _, err := l.Accept(); err != nil {
			return err
		}
	}
}

// playParent starts a child that listens, and waits for its end.
func playParent() error {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), roleVariable+"=udp")
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the parent-death signal is tied to the thread
	return child.Run()
}

// playUDP takes datagrams, and has a socket that does not since it is connected.
func playUDP() error {
	open, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if _, err := net.Dial("udp4", open.LocalAddr().String()); err != nil {
		return err
	}
	fmt.Println(open.LocalAddr())
	select {}
}

// role is the command that plays a role under its name.
func role(name string, env ...string) harness.Command {
	self, err := os.Executable()
	if err != nil {
		panic(err) // the program is running
	}
	return harness.Command{Name: name, Path: self, Env: append([]string{roleVariable + "=" + name}, env...)}
}
