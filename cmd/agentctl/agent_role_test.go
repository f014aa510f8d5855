package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/test/golden"
)

func TestRoleGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/role/*.in.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no configurations: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			got, _, err := agentctl(t, "agent", "role", "--config", file)
			if err != nil {
				t.Fatal(err)
			}
			golden.Compare(t, strings.TrimSuffix(file, ".in.yaml")+".out.yaml", got)
		})
	}
}

func TestRoleRefuses(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "agent.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tests := map[string]struct {
		args []string
		want string
	}{
		"no configuration":         {nil, "--config is missing"},
		"an absent configuration":  {[]string{"--config", "/absent"}, "read /absent"},
		"a misspelt switch":        {[]string{"--config", file("access: {exce: true}")}, "did you mean access.exec?"},
		"a misspelt section":       {[]string{"--config", file("polcy: {kinds: []}")}, "polcy: unknown key, did you mean policy?"},
		"a section of another":     {[]string{"--config", file("stream: {listen: \":8443\"}")}, "stream: unknown key"},
		"a key of another section": {[]string{"--config", file("redis_proxy: {max_conections: 1}")}, "did you mean redis_proxy.max_connections?"},
		"a rule without a name":    {[]string{"--config", file("access: {enabled: true, rules: [{verbs: [get]}]}")}, "access: rules[0]: name"},
		"all groups": {
			[]string{"--config", file(`access: {enabled: true, rules: [{name: all, groups: ["*"], resources: ["*"]}]}`)},
			`rule "all": all groups cannot be granted without what is switched off: name its groups, or accept that with --all-groups`,
		},
		"an account that is none": {[]string{"--config", file(""), "--service-account", "A B"}, `--service-account "A B"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			out, _, err := agentctl(t, append([]string{"agent", "role"}, tt.args...)...)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error is %v, want one with %q; printed:\n%s", err, tt.want, out)
			}
		})
	}
}
