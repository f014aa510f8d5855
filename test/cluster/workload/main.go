// Command workload is what pods of the cluster test run: it says a line each second until
// it is asked to end. With argument pause it says nothing, and collects the orphans of its
// PID namespace: so it holds a pod's namespaces, and those of a node. Called as echo or as httpd
// it does what busybox does by that name, for the pod of "agentctl connectivity test"; called as tini it
// becomes the program that its arguments name, and collects no orphans.
package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	switch filepath.Base(os.Args[0]) {
	case "echo":
		fmt.Println(strings.Join(os.Args[1:], " "))
		return
	case "httpd":
		panic(serve())
	case "tini":
		panic(become(slices.DeleteFunc(os.Args[1:], func(arg string) bool { return arg == "--" })))
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	if slices.Contains(os.Args, "pause") {
		pause(end)
		return
	}
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for line := 1; ; line++ {
		fmt.Println("line", line)
		select {
		case <-end:
			return
		case <-second.C:
		}
	}
}

// become runs a program in place of this one. It returns only an error.
func become(line []string) error {
	path, err := exec.LookPath(line[0])
	if err != nil {
		return err
	}
	return syscall.Exec(path, line, os.Environ())
}

// serve answers every request with 404, as an httpd of an empty folder.
func serve() error {
	flags := flag.NewFlagSet("httpd", flag.ExitOnError)
	flags.Bool("f", true, "stay in the foreground")
	port := flags.Int("p", 80, "port")
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}
	server := http.Server{Addr: fmt.Sprintf(":%d", *port), Handler: http.NotFoundHandler(), ReadHeaderTimeout: 10 * time.Second}
	return server.ListenAndServe()
}

// pause collects orphans until it is asked to end.
func pause(end <-chan os.Signal) {
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	for {
		select {
		case <-end:
			return
		case <-children: // one signal may stand for many
		}
		for pid := 1; pid > 0; {
			pid, _ = syscall.Wait4(-1, nil, syscall.WNOHANG, nil) // an error says that there are no more
		}
	}
}
