//go:build linux

package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/argomesh/argomesh/test/harness"
)

// account is the service account that the principal's chart has.
const account = "argomesh-principal"

// refuseMirrors applies the chart's policy by which people change and delete mirrors on
// their spoke alone, and returns a kubeconfig by which the principal is exempt from it.
func (t *topology) refuseMirrors(ctx context.Context) (kubeconfig string, err error) {
	hub := t.hub.controlPlane
	policy, err := mirrorPolicy(filepath.Join(t.h.Tools().Checkout(), "charts", "argomesh-principal", "templates", "mirrors.yaml"))
	if err != nil {
		return "", err
	}
	if err := hub.ApplyYAML(ctx, policy); err != nil {
		return "", err
	}
	config, err := clientcmd.LoadFromFile(hub.Kubeconfig)
	if err != nil {
		return "", err
	}
	for _, user := range config.AuthInfos {
		user.Impersonate = "system:serviceaccount:" + harness.ArgoCDNamespace + ":" + account
		user.ImpersonateGroups = []string{"system:masters"}
	}
	kubeconfig = t.h.Path("principal.kubeconfig")
	return kubeconfig, clientcmd.WriteToFile(*config, kubeconfig)
}

// mirrorPolicy renders the file of the chart. It uses little of Helm, which is no part of
// the demo.
func mirrorPolicy(file string) ([]byte, error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	parsed, err := template.New(filepath.Base(file)).Funcs(template.FuncMap{
		"include": func(string, any) string { return "{}" }, // labels
		"lookup":  func(...string) any { return nil },       // for helm uninstall
		"toYaml":  func(list []string) string { return "[" + strings.Join(list, ", ") + "]" },
		"nindent": func(_ int, text string) string { return " " + text },
	}).Parse(string(source))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = parsed.Execute(&out, map[string]any{
		"Values": map[string]any{
			"admission":      map[string]any{"mirrors": true, "actions": []string{"Deny"}},
			"serviceAccount": map[string]any{"name": account},
		},
		"Release": map[string]any{"Namespace": harness.ArgoCDNamespace},
	})
	return out.Bytes(), err
}
