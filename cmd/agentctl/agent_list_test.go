package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// listHub is a hub with two Agents in two namespaces, and a namespace without.
func listHub(t *testing.T) string {
	t.Helper()
	agents := []map[string]any{}
	for namespace, release := range map[string]string{"argocd": "v1.2.0", "other": "v1.1.0"} {
		agents = append(agents, map[string]any{
			"apiVersion": "argomesh.io/v1alpha1", "kind": "Agent", "metadata": map[string]any{"name": "in-" + namespace, "namespace": namespace},
			"spec": map[string]any{"mode": "managed", "identity": map[string]any{"spiffeIDs": []any{"spiffe://a/in-" + namespace}}}, "status": map[string]any{"connected": true, "versions": map[string]any{"agent": release}},
		})
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var items []map[string]any
		for _, a := range agents {
			namespace := a["metadata"].(map[string]any)["namespace"].(string)
			if r.URL.Path == "/apis/argomesh.io/v1alpha1/agents" || r.URL.Path == "/apis/argomesh.io/v1alpha1/namespaces/"+namespace+"/agents" {
				items = append(items, a)
			}
		}
		var reply any = map[string]any{"apiVersion": "argomesh.io/v1alpha1", "kind": "AgentList", "metadata": map[string]any{}, "items": items}
		switch {
		case r.URL.Path == "/version":
			reply = map[string]any{"gitVersion": "v1.34.1"}
		case r.URL.Path == "/api/v1/namespaces/empty":
			reply = map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "empty"}}
		case r.URL.Path == "/api/v1/namespaces/argocd/configmaps/argomesh-unknown-ids":
			reply = map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"ids.json": `[
				{"id": "spiffe://a/mistyped", "times": 7, "first": "2026-11-23T10:00:00Z", "last": "2026-11-23T10:05:00Z"},
				{"id": "spiffe://a/in-argocd", "times": 2, "first": "2026-11-23T09:00:00Z", "last": "2026-11-23T09:00:01Z"}]`}}
		case r.URL.Path == "/api/v1/namespaces/other/configmaps/argomesh-hub":
			reply = map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"principal-version": "v1.3.0"}}
		case strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/"):
			code, reason := http.StatusNotFound, "NotFound"
			if strings.HasSuffix(r.URL.Path, "/closed") {
				code, reason = http.StatusForbidden, "Forbidden"
			}
			w.WriteHeader(code)
			reply = map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code}
		case strings.Contains(r.Header.Get("Accept"), "as=Table"):
			rows := []map[string]any{}
			for _, a := range items {
				meta := a["metadata"].(map[string]any)
				rows = append(rows, map[string]any{"cells": []any{meta["name"], "managed"}, "object": map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta}})
			}
			reply = map[string]any{
				"apiVersion": "meta.k8s.io/v1", "kind": "Table", "rows": rows,
				"columnDefinitions": []any{map[string]any{"name": "Name", "type": "string"}, map[string]any{"name": "Mode", "type": "string"}},
			}
		}
		if err := json.NewEncoder(w).Encode(reply); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestList(t *testing.T) {
	url := listHub(t)
	for name, test := range map[string]struct {
		args []string
		out  []string // all of these
		note string
		err  string
	}{
		"of a namespace":                   {args: []string{"agent", "list"}, out: []string{"NAME        MODE\nin-argocd   managed\n"}},
		"of all namespaces":                {args: []string{"agent", "list", "-A"}, out: []string{"NAMESPACE   NAME", "argocd      in-argocd   managed\n", "other       in-other    managed\n"}},
		"all of them, for a program":       {args: []string{"agent", "list", "-A", "-o", "name"}, out: []string{"agent.argomesh.io/in-argocd\n", "agent.argomesh.io/in-other\n"}},
		"by a template":                    {args: []string{"agent", "list", "-A", "-o", "jsonpath={.items[*].status.versions.agent}"}, out: []string{"v1.1.0", "v1.2.0"}},
		"by a template of what is missing": {args: []string{"agent", "list", "-o", "jsonpath={.items[*].status.nothing}"}},
		"by a broken template":             {args: []string{"agent", "list", "-o", "jsonpath={.items[*"}, err: "jsonpath: "},
		"by a Go template":                 {args: []string{"agent", "list", "-A", "-o", "go-template={{range .items}}{{.metadata.name}} {{end}}"}, out: []string{"in-argocd ", "in-other "}},
		"by columns":                       {args: []string{"agent", "list", "-A", "-o", "custom-columns=NAME:.metadata.name,RUNS:status.versions.agent,NO:{.status.nothing}"}, out: []string{"NAME        RUNS     NO\n", "in-argocd   v1.2.0   <none>\n", "in-other    v1.1.0   <none>\n"}},
		"by columns without a path":        {args: []string{"agent", "list", "-o", "custom-columns=NAME"}, err: `custom-columns: column "NAME": HEADER:PATH is expected`},
		"by no columns":                    {args: []string{"agent", "list", "-o", "custom-columns="}, err: "an argument is expected"},
		"by a file that is not there":      {args: []string{"agent", "list", "-o", "jsonpath-file=/nowhere"}, err: "/nowhere"},
		"as what it is not printed":        {args: []string{"agent", "list", "-o", "xml"}, err: "custom-columns-file=FILE is expected"},
		"of a namespace without":           {args: []string{"agent", "list", "-n", "empty"}, note: "No agents in namespace empty.\n"},
		"of one that may not be seen":      {args: []string{"agent", "list", "-n", "closed"}, note: "No agents in namespace closed.\n"},
		"of one that does not exist":       {args: []string{"agent", "list", "-n", "nons"}, err: "list agents: namespace nons does not exist on the hub: name the one of Argo CD with --namespace"},
		"unknown IDs": {
			args: []string{"agent", "list", "--unknown"},
			out:  []string{"SPIFFE ID             TIMES   FIRST                  LAST\nspiffe://a/mistyped   7       2026-11-23T10:00:00Z   2026-11-23T10:05:00Z\n"},
			note: "Register one that is yours with: agentctl agent create NAME --mode managed --spiffe-id ID, or agentctl agent edit NAME.\n",
		},
		"unknown IDs, for a program": {
			args: []string{"agent", "list", "--unknown", "-o", "json"}, out: []string{"[\n  {\n    \"id\": \"spiffe://a/mistyped\",\n    \"times\": 7,"},
		},
		"unknown IDs where nobody knocked": {args: []string{"agent", "list", "--unknown", "-n", "other"}, note: "No SPIFFE ID was refused that belongs to no Agent.\n"},
		"unknown IDs of all namespaces":    {args: []string{"agent", "list", "--unknown", "-A"}, err: "each keeps its own"},
		"unknown IDs by label":             {args: []string{"agent", "list", "--unknown", "-l", "env=prod"}, err: "has no labels"},
		"unknown IDs as what they are not": {args: []string{"agent", "list", "--unknown", "-o", "name"}, err: "as a table, or with -o json"},
		"versions":                         {args: []string{"version", "--hub", "-n", "other"}, out: []string{"agentctl ", "\nhub       Kubernetes v1.34.1\nprincipal v1.3.0\nagents    v1.1.0 (1)\n"}},
		"versions, for a program":          {args: []string{"version", "--hub", "-o", "json"}, out: []string{`"kubernetes": "v1.34.1"`, `"v1.2.0": 1`}},
	} {
		t.Run(name, func(t *testing.T) {
			out, note, err := agentctl(t, append(test.args, "--server", url)...)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error is %v, want %q", err, test.err)
				}
				return
			}
			if err != nil || note != test.note || len(test.out) == 0 && out != "" {
				t.Errorf("it prints %q, says %q, %v", out, note, err)
			}
			for _, part := range test.out {
				if !strings.Contains(out, part) {
					t.Errorf("it prints\n%s\nwant\n%s", out, part)
				}
			}
		})
	}
}
