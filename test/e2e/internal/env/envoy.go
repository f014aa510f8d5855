//go:build linux

package env

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/test/harness"
)

// handshakeStatistics are what an Envoy counts of a listener's handshakes that failed,
// each under one of them.
var handshakeStatistics = []string{"ssl.connection_error", "ssl.fail_verify_error", "ssl.fail_verify_no_cert", "ssl.fail_verify_san"}

// FailedHandshakes counts those at a listener.
func FailedHandshakes(t *testing.T, envoy *harness.Sidecar, listener string) (n float64) {
	t.Helper()
	for _, name := range handshakeStatistics {
		n += EnvoyStatistic(t, envoy, "listener."+listener+"."+name)
	}
	return n
}

// EnvoyStatistic reads one counter or gauge of an Envoy.
func EnvoyStatistic(t *testing.T, envoy *harness.Sidecar, name string) float64 {
	t.Helper()
	body, err := harness.EnvoyAdmin(t.Context(), envoy.AdminAddress, "/stats?format=json&filter=^"+strings.ReplaceAll(name, ".", "%5C.")+"$")
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Stats []struct{ Value float64 }
	}
	if err := json.Unmarshal(body, &answer); err != nil || len(answer.Stats) != 1 {
		t.Fatalf("statistic %s: %v: %s", name, err, body)
	}
	return answer.Stats[0].Value
}
