package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSetChangesWhatFlagsName(t *testing.T) {
	spec := map[string]any{
		"labels": map[string]any{"env": "prod", "tier": "a"}, "deletionPolicy": "orphan",
		"access": map[string]any{"enabled": true, "writes": true, "impersonate": []any{"someone"}}, "limits": map[string]any{"applications": 5},
	}
	for name, test := range map[string]struct {
		args string
		want string // the patch of the spec; empty for none
		says string
	}{
		"labels":                   {"set edge-1 --label env=test --label tier- --label new=", `{"labels":{"env":"test","new":"","tier":null}}`, "edge-1 set"},
		"labels as they are":       {"set edge-1 --label env=prod", "", "edge-1 unchanged"},
		"access":                   {"set edge-1 --access read,exec", `{"access":{"exec":true,"writes":null}}`, "edge-1 set"},
		"access, by more than one": {"set edge-1 --access exec --access tracked-only", `{"access":{"exec":true,"trackedOnly":true,"writes":null}}`, "edge-1 set"},
		"masked Secrets":           {"set edge-1 --access writes,masked-secrets", `{"access":{"secrets":"masked"}}`, "edge-1 set"},
		"access off":               {"set edge-1 --access off", `{"access":{"enabled":false}}`, "edge-1 set"},
		"access as it is":          {"set edge-1 --access writes", "", "edge-1 unchanged"},
		"namespaces":               {"set edge-1 --mapping =edge-1 --mapping team=edge-1-team", `{"mapping":{"namespaces":[{"hub":"edge-1","spoke":""},{"hub":"edge-1-team","spoke":"team"}]}}`, "edge-1 set"},
		"modes of mirroring":       {"set edge-1 --child-applications mirror --cascade-hold 0", `{"cascadeHold":0,"childApplications":"mirror"}`, "edge-1 set"},
		"defaults are no change":   {"set edge-1 --child-applications ignore --cascade-hold 10 --deletion-policy orphan --suspended=false", "", "edge-1 unchanged"},
		"adoption":                 {"set edge-1 --adopt application/web-*", `{"adopt":["application/web-*"]}`, "edge-1 set"},
		"another identity":         {"set edge-1 --trust-domain edge.example", `{"identity":{"spiffeIDs":["spiffe://edge.example/argomesh/agent/edge-1"]}}`, "edge-1 set"},
		"suspended":                {"suspend edge-1", `{"suspended":true}`, "edge-1 suspended"},
		"resumed that is not":      {"resume edge-1", "", "edge-1 unchanged"},
	} {
		t.Run(name, func(t *testing.T) {
			hub, url := newFakeHub(t, spec, nil, nil)
			hub.lists["/applications"] = nil
			out, note, err := agentctl(t, append([]string{"agent", "--server", url}, strings.Fields(test.args)...)...)
			if err != nil || !strings.Contains(out, test.says) {
				t.Fatalf("it prints %q, %q, %v", out, note, err)
			}
			if test.want == "" {
				if len(hub.writes) > 0 {
					t.Errorf("the hub was told %q", hub.writes)
				}
				return
			}
			if len(hub.writes) != 1 {
				t.Fatalf("the hub was told %q", hub.writes)
			}
			var got, want map[string]any
			if err := json.Unmarshal([]byte(strings.TrimPrefix(hub.writes[0], "PATCH ")), &got); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(`{"metadata":{"resourceVersion":"7"},"spec":`+test.want+`}`), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			// Once more changes nothing.
			if out, _, err := agentctl(t, append([]string{"agent", "--server", url}, strings.Fields(test.args)...)...); err != nil || !strings.Contains(out, "edge-1 unchanged") {
				t.Errorf("once more it prints %q, %v", out, err)
			}
		})
	}
}

func TestSetRefusesAndNamesTheFlag(t *testing.T) {
	for args, want := range map[string]string{
		"edge-1":                                           `nothing is to be set: see "agentctl agent set --help"`,
		"edge-1 --access off,read":                         "--access: off goes alone",
		"edge-1 --access all":                              `--access "all": off, or some of read, secrets`,
		"edge-1 --mapping team":                            `--mapping "team": spoke=hub is expected`,
		"edge-1 --cascade-hold -1":                         "--cascade-hold -1: 0 or more is expected",
		"edge-1 --label env":                               "key=value is expected",
		"edge-1 --spiffe-id nonsense":                      "--spiffe-id: ",
		"edge-1 --spiffe-id spiffe://a/b --trust-domain a": "give one of them",
	} {
		hub, url := newFakeHub(t, nil, nil, nil)
		_, _, err := agentctl(t, append([]string{"agent", "set", "--server", url}, strings.Fields(args)...)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("set %s: %v, want %q", args, err, want)
		}
		if len(hub.writes) > 0 {
			t.Errorf("set %s: the hub was told %q", args, hub.writes)
		}
	}
}

// What waits to be deleted is asked about before the agent is let in.
func TestResumeNeedsYesWhereWorkloadsMayGo(t *testing.T) {
	hub, url := newFakeHub(t, map[string]any{"suspended": true}, nil, nil)
	hub.lists["/applications"] = []map[string]any{application("shop", "resources-finalizer.argocd.argoproj.io")}
	resume := []string{"agent", "resume", "edge-1", "--server", url}
	_, note, err := agentctl(t, resume...)
	if err == nil || err.Error() != `resume agent "edge-1": there is no terminal to ask on: say --yes` || !strings.Contains(note, "edge-1/shop") {
		t.Errorf("it says %q, %v", note, err)
	}
	if _, note, err := talk(t, "n\n", resume...); err != nil || !strings.Contains(note, "Cancelled, agent edge-1 stays as it is.") || len(hub.writes) > 0 {
		t.Errorf("told no it says %q, %v, and tells the hub %q", note, err, hub.writes)
	}
	if out, _, err := agentctl(t, append(resume, "--yes")...); err != nil || !strings.Contains(out, "edge-1 resumed") || len(hub.writes) != 1 {
		t.Errorf("with --yes it prints %q, %v, and tells the hub %q", out, err, hub.writes)
	}
}
