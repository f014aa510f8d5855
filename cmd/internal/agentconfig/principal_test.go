package agentconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/cmd/internal/config"
)

// load reads the block principal of a configuration file.
func load(t *testing.T, principal string) (Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "agent.yaml")
	text := "name: edge-1\nmode: managed\nidentity: {socket: 'unix:///run/s'}\nprincipal: {" + principal + "}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load(config.Program{Name: "agent", Environ: func() []string { return nil }}, []string{"--config", file}, Default())
}

func TestMethods(t *testing.T) {
	const ids = "spiffe_ids: ['spiffe://hub.test/principal', 'spiffe://hub.test/principal-2']"
	const at = "address: 'hub.test:443', "
	for name, tt := range map[string]struct{ principal, key, why string }{
		"the default":                      {at + ids, "", ""},
		"a token for the principal":        {at + ids + ", method: spiffe-jwt", "", ""},
		"a token behind a name":            {at + ids + ", method: spiffe-jwt, gateway: {server_name: lb.test, ca_file: /ca.pem}", "", ""},
		"a token behind a gateway":         {at + ids + ", method: spiffe-jwt, gateway: {spiffe_ids: ['spiffe://hub.test/gateway']}", "", ""},
		"a token to a proxy beside us":     {"address: '127.0.0.1:1', " + ids + ", method: spiffe-jwt, gateway: {plaintext: true}", "", ""},
		"a header behind a gateway":        {at + ids + ", method: header, gateway: {spiffe_ids: ['spiffe://hub.test/gateway']}", "", ""},
		"a header from a proxy beside us":  {"address: 'unix:///run/p', " + ids + ", method: header, gateway: {plaintext: true}", "", ""},
		"no id":                            {"address: 'hub.test:443'", "principal.spiffe_ids", "is empty"},
		"a trust domain":                   {at + "spiffe_ids: ['spiffe://hub.test']", "principal.spiffe_ids", "no path"},
		"another method":                   {at + ids + ", method: mtls", "principal.method", "is not a method"},
		"no address":                       {ids, "principal.address", "host:port"},
		"a gateway for X.509-SVIDs":        {at + ids + ", gateway: {server_name: lb.test}", "principal.gateway", "end before"},
		"a header and no gateway":          {at + ids + ", method: header", "principal.gateway", "is not set"},
		"a gateway in two ways":            {at + ids + ", method: spiffe-jwt, gateway: {server_name: lb.test, spiffe_ids: ['spiffe://hub.test/gateway']}", "principal.gateway", "several ways"},
		"a gateway that is a trust domain": {at + ids + ", method: header, gateway: {spiffe_ids: ['spiffe://hub.test']}", "principal.gateway.spiffe_ids", "no path"},
		"a file for no name":               {at + ids + ", method: spiffe-jwt, gateway: {ca_file: /ca.pem}", "principal.gateway.ca_file", "server_name"},
		"clear text to anywhere":           {at + ids + ", method: spiffe-jwt, gateway: {plaintext: true}", "principal.gateway.plaintext", "clear text"},
		"clear text to a name":             {"address: 'localhost:1', " + ids + ", method: header, gateway: {plaintext: true}", "principal.gateway.plaintext", "clear text"},
		"clear text to an odd socket":      {"address: 'unix://run/p', " + ids + ", method: header, gateway: {plaintext: true}", "principal.", "unix"},
		"TLS over a unix socket":           {"address: 'unix:///run/p', " + ids + ", method: spiffe-jwt", "principal.address", "gateway.plaintext"},
	} {
		_, err := load(t, tt.principal)
		if tt.why == "" && err != nil || tt.why != "" && (err == nil || !strings.Contains(err.Error(), tt.key) || !strings.Contains(err.Error(), tt.why)) {
			t.Errorf("%s: Load() = %v, want an error of %q that says %q", name, err, tt.key, tt.why)
		}
	}
}
