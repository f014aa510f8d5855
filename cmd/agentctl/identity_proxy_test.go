package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/identity/devworkload"
)

// argsOfProgram has the arguments with which TestProgram is agentctl, one a line.
const argsOfProgram = "AGENTCTL_TEST_ARGS"

// TestProgram is agentctl in a process of its own, for what a process reads once: its
// environment.
func TestProgram(t *testing.T) {
	args := os.Getenv(argsOfProgram)
	if args == "" {
		t.Skip("it is run by other tests")
	}
	if err := run(t.Context(), strings.Split(args, "\n"), cli.Streams{In: strings.NewReader(""), Out: os.Stdout, Err: os.Stderr}); err != nil {
		t.Fatal(err)
	}
}

// tunnelProxy is an HTTP proxy that connects whatever is asked for to one address.
type tunnelProxy struct {
	t  *testing.T
	to string

	mu    sync.Mutex // guards asked
	asked []string
}

func (p *tunnelProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asked = append(p.asked, r.Method+" "+r.Host)
	p.mu.Unlock()
	there, err := new(net.Dialer).DialContext(r.Context(), "tcp", p.to)
	if err != nil {
		p.t.Error(err)
		return
	}
	defer func() { _ = there.Close() }() // it was copied until its end
	here, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		p.t.Error(err)
		return
	}
	defer func() { _ = here.Close() }() // as above
	if _, err := io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		p.t.Error(err)
		return
	}
	var ended sync.WaitGroup
	ended.Go(func() {
		_, _ = io.Copy(there, buffered) // it ends when either side does
		_ = there.Close()
	})
	_, _ = io.Copy(here, there) // as above
	_ = here.Close()
	ended.Wait()
}

// The doctor reaches a principal by the proxy of the environment, as the agent does.
func TestDoctorDialsByTheProxyOfTheEnvironment(t *testing.T) {
	hubAPI, hubSocket := workloadAPIOf(t, hubTD, devworkload.Entry{ID: principalID})
	edgeAPI, socket := workloadAPIOf(t, edgeTD, devworkload.Entry{ID: edge1ID})
	if err := errors.Join(edgeAPI.SetFederated(hubAPI.Bundle()), hubAPI.SetFederated(edgeAPI.Bundle())); err != nil {
		t.Fatal(err)
	}
	var registry registryOf
	registry.admitted.Store(&edge1ID)
	proxy := &tunnelProxy{t: t, to: principalOf(t, hubSocket, &registry, byCertificate)}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	const address = "principal.hub.invalid:443"                                               // which only the proxy can reach
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProgram$", "-test.v") //nolint:gosec // this very program
	cmd.Env = []string{
		argsOfProgram + "=" + strings.Join([]string{"identity", "doctor", "-o", "wide", "--socket", socket, "--principal", address, "--principal-id", principalID.String()}, "\n"),
		"HTTPS_PROXY=" + server.URL, "HOME=" + t.TempDir(),
	}
	out, err := cmd.CombinedOutput()
	if want := "ok: principal " + address + " is " + principalID.String() + ", and knows our SPIFFE ID for agent edge-1 (managed)"; err != nil || !strings.Contains(string(out), want) {
		t.Errorf("doctor: %v\n%s\nwant %q", err, out, want)
	}
	proxy.mu.Lock()
	defer proxy.mu.Unlock()
	if len(proxy.asked) == 0 || proxy.asked[0] != "CONNECT "+address {
		t.Errorf("the proxy was asked for %q", proxy.asked)
	}
}
