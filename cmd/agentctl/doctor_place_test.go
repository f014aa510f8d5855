package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/registration"
)

// cluster is a Kubernetes API with those ConfigMaps in namespace argo, an Application of an
// AppProject that is not there, and an Agent, as far as it knows what they are.
type cluster struct {
	without    []string // resources that it does not know
	configMaps []string
	forbidden  bool // to read ConfigMaps
}

func (c cluster) start(t *testing.T) string {
	t.Helper()
	lists := map[string]string{
		"/apis/argomesh.io/v1alpha1/namespaces/argo/agents": `{"apiVersion":"argomesh.io/v1alpha1","kind":"Agent","metadata":{"namespace":"argo","name":"edge-1"},
			"spec":{"mode":"managed","identity":{"spiffeIDs":["spiffe://hub.test/argomesh/agent/edge-1"]}}}`,
		"/apis/argoproj.io/v1alpha1/applications": `{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"namespace":"edge-1","name":"shop","uid":"u"},
			"spec":{"project":"nobodys","source":{"repoURL":"https://git.test/r"},"destination":{"name":"edge-1","namespace":"web"}}}`,
	}
	answers := func(w http.ResponseWriter, code int, reason string) {
		w.WriteHeader(code)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"` + reason + `","details":{"name":"x","kind":"configmaps"}}`))
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, resource := range c.without {
			if strings.Contains(r.URL.Path, "/"+resource) {
				http.NotFound(w, r)
				return
			}
		}
		w.Header().Set("Content-Type", "application/json")
		name, ofConfigMap := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/argo/configmaps/")
		switch {
		case ofConfigMap && c.forbidden:
			answers(w, http.StatusForbidden, "Forbidden")
		case ofConfigMap && strings.Contains(" "+strings.Join(c.configMaps, " ")+" ", " "+name+" "):
			_, _ = w.Write([]byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":"argo","name":"` + name + `"},"data":{"uid":"u","mapping":"namespace"}}`))
		case ofConfigMap:
			answers(w, http.StatusNotFound, "NotFound")
		default:
			_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":"1"},"items":[` + lists[r.URL.Path] + `]}`))
		}
	}))
	t.Cleanup(api.Close)
	return api.URL
}

// Who gives doctor the kubeconfig of another cluster learns that, and nothing that would be
// true of the right one only.
func TestDoctorAtTheWrongCluster(t *testing.T) {
	t.Setenv(registration.SocketEnv, "")
	const (
		agent     = "name: edge-1\nmode: managed\nnamespace: argo\nprincipal: {address: \"hub.test:8443\", spiffe_ids: [spiffe://hub.test/argomesh/principal]}\nidentity: {socket: unix:///run/a.sock}\n"
		principal = "namespace: argo\nidentity: {socket: unix:///run/a.sock}\n"
		judged    = "Application edge-1/shop is not sent to agent edge-1"
	)
	for what, test := range map[string]struct {
		cluster     cluster
		file, text  string
		fails, says string
		not         string
	}{
		"an agent's, without Argo CD": {
			cluster{without: []string{"appprojects", "applications", "agents"}}, "agent-config", agent,
			"has no Argo CD: it does not know AppProjects; choose the spoke's with --kubeconfig or --context", "", "policy",
		},
		"a principal's, without Argo CD": {
			cluster{without: []string{"appprojects", "applications", "agents"}}, "principal-config", principal,
			"has no Argo CD: it does not know AppProjects; choose the hub's with --kubeconfig or --context", "", "projects",
		},
		"an agent's, at the hub": {
			cluster{configMaps: []string{"argomesh-hub"}}, "agent-config", agent,
			"is a hub: in namespace argo is ConfigMap argomesh-hub of the principal, and not argomesh-agent of the agent; choose the spoke's", "", "policy",
		},
		"a principal's, at a spoke": {
			cluster{configMaps: []string{"argomesh-agent"}, without: []string{"agents"}}, "principal-config", principal,
			"is a spoke: in namespace argo is ConfigMap argomesh-agent of the agent, and not argomesh-hub of the principal; choose the hub's", "", "projects",
		},
		"an agent's, where none has run":       {cluster{}, "agent-config", agent, "", "the agent has never run there, since there is no ConfigMap argomesh-agent; cure: choose the spoke's", ""},
		"a principal's, where none has run":    {cluster{}, "principal-config", principal, "", "the principal has never run there, since there is no ConfigMap argomesh-hub; cure: choose the hub's", ""},
		"an agent's":                           {cluster{configMaps: []string{"argomesh-agent"}}, "agent-config", agent, "", "ok: policy admits all that the hub has on this spoke\n", "cure"},
		"a principal's":                        {cluster{configMaps: []string{"argomesh-hub"}}, "principal-config", principal, "", judged, "never run"},
		"a principal's, whose cluster is both": {cluster{configMaps: []string{"argomesh-agent", "argomesh-hub"}}, "principal-config", principal, "", judged, "never run"},
		"an agent's, without the right to see": {cluster{forbidden: true}, "agent-config", agent, "", "ok: policy admits all that the hub has on this spoke\n", "cure"},
		"a principal's, without the right":     {cluster{forbidden: true}, "principal-config", principal, "read the settings", "", "never run"},
	} {
		t.Run(what, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "planned.yaml")
			if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			server := test.cluster.start(t)
			out, _, err := agentctl(t, "identity", "doctor", "--"+test.file, file, "--server", server)
			if test.fails == "" && err != nil || test.fails != "" && (err == nil || !strings.Contains(err.Error(), test.fails) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("%v, want %q", err, test.fails)
			}
			if err != nil && strings.Contains(test.fails, "choose") && !strings.Contains(err.Error(), server) {
				t.Errorf("it does not say which cluster: %v", err)
			}
			if !strings.Contains(out, test.says) || test.not != "" && strings.Contains(out, test.not) {
				t.Errorf("doctor says, want %q and not %q:\n%s", test.says, test.not, out)
			}
		})
	}
}
