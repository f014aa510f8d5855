package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Registering again changes nothing, also when someone set what no flag names; what a flag
// names and the Agent has otherwise is refused, with the command that changes it.
func TestCreateCanBeRepeated(t *testing.T) {
	there := map[string]any{
		"labels": map[string]any{"env": "prod"}, "access": map[string]any{"enabled": true}, "suspended": true, "deletionPolicy": "cascade", "tokenGeneration": 3,
	}
	for name, test := range map[string]struct{ flags, err string }{
		"what no flag names may be anything": {"", ""},
		"what a flag names is so":            {"--label env=prod --access read --suspended", ""},
		"a label is another":                 {"--label env=test", `spec.labels.env is "prod", not "test"; change that with "agentctl agent set edge-1 --spiffe-id spiffe://a/b --label env=test"`},
		"access is another":                  {"--access read,exec", `change that with "agentctl agent set edge-1 --spiffe-id spiffe://a/b --access read,exec"`},
		"it is not suspended":                {"--suspended=false", `spec.suspended is true, not unset; change that with "agentctl agent set edge-1 --spiffe-id spiffe://a/b --suspended=false"`},
	} {
		t.Run(name, func(t *testing.T) {
			hub, url := newFakeHub(t, there, nil, nil)
			out, _, err := agentctl(t, append(strings.Fields("agent create edge-1 --mode managed --spiffe-id spiffe://a/b --server "+url), strings.Fields(test.flags)...)...)
			if test.err == "" && (err != nil || out != "agent.argomesh.io/edge-1 unchanged\n") {
				t.Errorf("it prints %q, %v", out, err)
			}
			if test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("error is %v, want %q", err, test.err)
			}
			for _, write := range hub.writes {
				if !strings.HasPrefix(write, "POST ") { // of the create that fails
					t.Errorf("the hub was told %q", write)
				}
			}
		})
	}
}

// It names the ApplicationSets that select the cluster, and says what comes next.
func TestCreateSaysWhatComesNext(t *testing.T) {
	sets := []map[string]any{
		applicationSet("addons", nil, nil), applicationSet("prod", map[string]any{"env": "prod"}, nil), applicationSet("test", map[string]any{"env": "test"}, nil),
		applicationSet("perhaps", map[string]any{"env": "{{env}}"}, nil), applicationSet("by-name", map[string]any{"argocd-agent.argoproj-labs.io/agent-name": "edge-1"}, nil),
	}
	create := func(t *testing.T, denied, flags string) (string, string) {
		t.Helper()
		hub, url := newFakeHub(t, nil, nil, nil)
		hub.agent, hub.lists["/applicationsets"] = nil, sets
		if denied != "" {
			hub.denied = []string{denied}
		}
		out, note, err := agentctl(t, append(strings.Fields("agent create edge-1 --mode managed --trust-domain example.org --label env=prod --server "+url), strings.Fields(flags)...)...)
		if err != nil {
			t.Fatal(err)
		}
		return out, note
	}
	const selecting = "ApplicationSet argocd/addons selects the cluster edge-1 by its labels.\n" +
		"ApplicationSet argocd/prod selects the cluster edge-1 by its labels.\n" +
		"ApplicationSet argocd/perhaps may select the cluster edge-1: that depends on what its other generators give.\n" +
		"ApplicationSet argocd/by-name selects the cluster edge-1 by its labels.\n"
	t.Run("all of it", func(t *testing.T) {
		out, note := create(t, "", "--access read,exec --mapping =edge-1 --mapping team=edge-1-team --principal hub.example:443 --principal-id spiffe://hub.example/principal")
		if out != "agent.argomesh.io/edge-1 created\n" {
			t.Errorf("it prints %q", out)
		}
		const want = selecting + `Next, on the spoke, with these values in edge-1.yaml:

  config:
    access:
      enabled: true
      exec: true
    mapping:
      namespaces:
      - team
    mode: managed
    name: edge-1
    principal:
      address: hub.example:443
      spiffe_ids:
      - spiffe://hub.example/principal

  agentctl spoke install edge-1 --values edge-1.yaml

Then, on the hub:
  kubectl --namespace argocd wait agent/edge-1 --for=condition=Connected
`
		if note != want {
			t.Errorf("it says\n%s\nwant\n%s", note, want)
		}
	})
	t.Run("what is not known is said", func(t *testing.T) {
		_, note := create(t, "", "")
		for _, part := range []string{"address: PRINCIPAL_HOST:PORT", "agentctl agent values edge-1 --principal HOST:PORT --principal-id ID", "agentctl agent set edge-1 --access read"} {
			if !strings.Contains(note, part) {
				t.Errorf("it says\n%s\nwant something with %q", note, part)
			}
		}
	})
	t.Run("for a program", func(t *testing.T) {
		if _, note := create(t, "", "-o name"); note != selecting {
			t.Errorf("it says\n%s", note)
		}
	})
	t.Run("what may not be read is said", func(t *testing.T) {
		if out, note := create(t, "/applicationsets", "-o name"); !strings.HasPrefix(note, "Which ApplicationSets select the cluster cannot be read: ") || out == "" {
			t.Errorf("it prints %q and says %q", out, note)
		}
	})
}

// The values are such that the chart takes them, whatever the Agent says.
func TestValuesOfASpokeFitTheChart(t *testing.T) {
	raw, err := os.ReadFile("../../charts/argomesh-agent/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(raw, &schema); err != nil {
		t.Fatal(err)
	}
	switches := map[string]any{"enabled": true, "writes": true, "secrets": true, "tokens": true, "proxy": true, "exec": true, "ephemeralContainers": true, "nodes": true, "trackedOnly": true}
	_, url := newFakeHub(t, map[string]any{
		"access":  switches,
		"mapping": map[string]any{"namespaces": []any{map[string]any{"spoke": "", "hub": "a"}, map[string]any{"spoke": "team", "hub": "b"}}},
	}, nil, nil)
	out, _, err := agentctl(t, "agent", "values", "edge-1", "--principal", "hub.example:443", "--principal-id", "spiffe://hub.example/p", "--server", url)
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict([]byte(out), &values); err != nil {
		t.Fatal(err)
	}
	var walk func(path string, value, schema any)
	walk = func(path string, value, schema any) {
		fields, is := value.(map[string]any)
		if !is {
			return
		}
		known, _ := schema.(map[string]any)["properties"].(map[string]any)
		for key, below := range fields {
			if known[key] == nil {
				t.Errorf("the chart has no %s.%s", path, key)
				continue
			}
			walk(path+"."+key, below, known[key])
		}
	}
	walk("", values, schema)
	if got := len(values["config"].(map[string]any)["access"].(map[string]any)); got != len(switches) {
		t.Errorf("%d switches, want %d:\n%s", got, len(switches), out)
	}
	for args, want := range map[string]string{
		"": "--principal is missing", "--principal a:1": "--principal-id is missing",
		"--principal a --principal-id spiffe://a/b": "host:port is expected", "--principal a:1 --principal-id b": "--principal-id: ",
	} {
		if _, _, err := agentctl(t, append([]string{"agent", "values", "edge-1", "--server", url}, strings.Fields(args)...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("values %s: %v, want %q", args, err, want)
		}
	}
}

func TestGetAnswersToOtherWords(t *testing.T) {
	_, url := newFakeHub(t, nil, nil, nil)
	for _, word := range []string{"describe", "inspect", "show"} {
		if out, _, err := agentctl(t, "agent", word, "edge-1", "-o", "name", "--server", url); err != nil || out != "agent.argomesh.io/edge-1\n" {
			t.Errorf("%s prints %q, %v", word, out, err)
		}
	}
}
