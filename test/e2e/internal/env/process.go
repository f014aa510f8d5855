//go:build linux

package env

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argomesh/argomesh/test/harness"
)

// Leases are those of Kubernetes.
var Leases = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

// ActiveAgent is a check of what an agent says of itself, and that only one that works
// has a connection.
func ActiveAgent(ctx context.Context, a *harness.Agent, want bool) error {
	is, err := Gauge(ctx, a.AdminAddress, "argomesh_agent_active")
	if err != nil {
		return err
	}
	up, err := Gauge(ctx, a.AdminAddress, "argomesh_stream_up")
	if err != nil {
		return err
	}
	if (is == "1") != want || (up == "1") != want {
		return fmt.Errorf("%s: active %s, connections up %s", a.Name(), is, up)
	}
	return nil
}

// Gauge reads one metric without labels.
func Gauge(ctx context.Context, address, name string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }() // it was read
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(body)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("no metric %s at %s", name, address)
}

// FileSize is the size of a log, from which LogLines reads what comes later.
func FileSize(t *testing.T, p *harness.Process) int64 {
	t.Helper()
	info, err := os.Stat(p.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// LogLines returns what a process logged from an offset on.
func LogLines(t *testing.T, p *harness.Process, from int64) []map[string]any {
	t.Helper()
	file, err := os.Open(p.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // it is only read
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	var all []map[string]any
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var line map[string]any
		if json.Unmarshal(scanner.Bytes(), &line) == nil { // the harness writes lines of its own
			all = append(all, line)
		}
	}
	if err := scanner.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// Fetch gets a URL.
func Fetch(ctx context.Context, url string) (code int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return response.StatusCode, string(content), err
}

// Metric returns the sum of a metric's samples on a process's admin server.
func Metric(ctx context.Context, admin, name string) (float64, error) {
	_, body, err := Fetch(ctx, "http://"+admin+"/metrics")
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for line := range strings.Lines(body) {
		sample, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if sample, _, _ = strings.Cut(sample, "{"); !ok || sample != name {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// KillAndStart is a crash of a process that is started again.
func KillAndStart(ctx context.Context, p *harness.Process) error {
	if err := p.Kill(); err != nil {
		return err
	}
	return p.Start(ctx)
}
