package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/registration"
)

// planHub is a Kubernetes API with one managed agent, and an Application in its namespace
// and one with its cluster as the destination. Both name an AppProject that is not there.
// mapping is what the hub keeps; empty for a hub that no principal has started on.
func planHub(t *testing.T, mapping string) string {
	t.Helper()
	const app = `{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"namespace":"%ns","name":"%name","uid":"u-%name"},
		"spec":{"project":"nobodys","source":{"repoURL":"https://git.test/r"},"destination":{"name":"%to","namespace":"web"}}}`
	one := func(ns, name, to string) string {
		return strings.NewReplacer("%ns", ns, "%name", name, "%to", to).Replace(app)
	}
	lists := map[string]string{
		"agents": `{"apiVersion":"argomesh.io/v1alpha1","kind":"Agent","metadata":{"namespace":"argocd","name":"edge-1"},
			"spec":{"mode":"managed","identity":{"spiffeIDs":["spiffe://hub.test/argomesh/agent/edge-1"]}}}`,
		"applications": one("edge-1", "by-namespace", "edge-1") + "," + one("team-a", "by-destination", "edge-1"),
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		last := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		if last == "argomesh-hub" && mapping != "" {
			_, _ = fmt.Fprintf(w, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"argomesh-hub"},"data":{"uid":"u","mapping":%q}}`, mapping)
			return
		}
		if last == "argocd-cm" || last == "argomesh-hub" {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`))
			return
		}
		if last == "argomesh-agent" {
			_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"argocd","name":"` + last + `"}}`))
			return
		}
		_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":"1"},"items":[` + lists[last] + `]}`))
	}))
	t.Cleanup(api.Close)
	return api.URL
}

// A file with which the program runs is one that doctor checks by, whatever is in it.
func TestDoctorReadsTheProgramsFiles(t *testing.T) {
	t.Setenv(registration.SocketEnv, "")
	const (
		namespaced = "Application edge-1/by-namespace is not sent to agent edge-1"
		destined   = "Application team-a/by-destination is not sent to agent edge-1"
	)
	for what, test := range map[string]struct {
		flag, file string
		mapping    string // in force on the hub; empty where no principal has started
		text       string // instead of a file of testdata
		says, not  []string
		fails      string
	}{
		"a principal by namespace": {
			flag: "principal-config", file: "principal.yaml", mapping: "namespace",
			says: []string{namespaced, `AppProject "nobodys" does not exist on the hub; cure: `}, not: []string{destined, "start"},
		},
		"a principal by destination": {
			flag: "principal-config", file: "principal-destination.yaml", mapping: "destination",
			says: []string{destined}, not: []string{namespaced, "start"},
		},
		"an agent": {flag: "agent-config", file: "agent.yaml", says: []string{"ok: policy admits all that the hub has on this spoke\n"}, not: []string{"start"}},
		"a misspelt section": {
			flag: "principal-config", text: "maping: {by: destination}\n", fails: "maping: unknown key, did you mean mapping?",
		},
		"a misspelt key": {
			flag: "principal-config", text: "resource_proxy: {audit: {fle: '-'}}\n", fails: "resource_proxy.audit.fle: unknown key, did you mean resource_proxy.audit.file?",
		},
		"a misspelt key of an agent": {flag: "agent-config", text: "policy: {kindz: []}\n", fails: "policy.kindz: unknown key, did you mean policy.kinds?"},
		"nothing to check by":        {flag: "principal-config", text: "mapping: {by: chance}\n", fails: `mapping.by: "chance" is neither namespace nor destination`},
		"a policy that is none":      {flag: "agent-config", text: "name: edge-1\nmode: managed\npolicy: {kinds: [Application]}\n", fails: `policy: kinds: "Application" is not one of`},
		"an agent without a mode":    {flag: "agent-config", text: "name: edge-1\n", fails: "mode: is not set"},
		"an agent without a name":    {flag: "agent-config", text: "mode: managed\n", fails: "name: is not set"},
		"what the environment may give": {
			flag: "principal-config", text: "{}\n", mapping: "namespace",
			says: []string{"alone does not start the principal: identity.socket: is not set", "unless the environment or the flags of the principal set it", namespaced},
		},
		"no principal's file": {flag: "principal-config", file: "absent.yaml", fails: "no such file or directory: name a readable YAML file (flag --principal-config)"},
		"no agent's file":     {flag: "agent-config", file: "absent.yaml", fails: "no such file or directory: name a readable YAML file (flag --agent-config)"},
	} {
		t.Run(what, func(t *testing.T) {
			file := filepath.Join("testdata", "doctor", test.file)
			if test.text != "" {
				file = filepath.Join(t.TempDir(), "planned.yaml")
				if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, _, err := agentctl(t, "identity", "doctor", "--"+test.flag, file, "--server", planHub(t, test.mapping))
			switch {
			case test.fails == "" && err != nil:
				t.Errorf("%v", err)
			case test.fails != "" && (err == nil || !strings.Contains(err.Error(), test.fails)):
				t.Errorf("%v, want %q", err, test.fails)
			}
			for _, text := range test.says {
				if !strings.Contains(out, text) {
					t.Errorf("doctor does not say %q:\n%s", text, out)
				}
			}
			for _, text := range test.not {
				if strings.Contains(out, text) {
					t.Errorf("doctor says %q:\n%s", text, out)
				}
			}
		})
	}
}

// What was found is told, although the API that was to say more does not answer.
func TestDoctorTellsWhatItFoundBeforeItFailed(t *testing.T) {
	t.Setenv(registration.SocketEnv, "")
	file := filepath.Join(t.TempDir(), "principal.yaml")
	if err := os.WriteFile(file, []byte("limits: {bytes_per_second: 1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _, err := agentctl(t, "identity", "doctor", "--principal-config", file, "--server", "https://127.0.0.1:1")
	if err == nil || !strings.Contains(out, "limits.bytes_per_second: 1 is too little") {
		t.Errorf("%v\n%s", err, out)
	}
}
