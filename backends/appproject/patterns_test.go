package appproject_test

import (
	"strings"
	"testing"

	"github.com/argomesh/argomesh/backends/appproject"
)

func TestPatternProblem(t *testing.T) {
	dear := strings.Repeat("[a-z]*", 7)
	for field, value := range map[string]any{
		"sourceRepos":              []any{"https://git.example/*", dear},
		"sourceNamespaces":         []any{dear},
		"destinations":             []any{map[string]any{"name": "*", "server": "*", "namespace": dear}},
		"clusterResourceWhitelist": []any{map[string]any{"group": dear, "kind": "*"}},
		"syncWindows": []any{map[string]any{"kind": "allow", "schedule": "* * * * *", "namespaces": []any{"a"}},
			map[string]any{"applications": []any{strings.Repeat("{a,b}", 7)}}},
		"destinationServiceAccounts": []any{map[string]any{"server": dear}},
	} {
		if got := appproject.PatternProblem(map[string]any{field: value}); !strings.HasPrefix(got, "a pattern in spec."+field+" has 7 wildcards, and one may have 6") {
			t.Errorf("%s: %q", field, got)
		}
	}
	for schedule, want := range map[string]string{
		"TZ=UTC":              `the schedule "TZ=UTC" in spec.syncWindows has a time zone and no time`,
		"CRON_TZ=":            `the schedule "CRON_TZ=" in spec.syncWindows has a time zone and no time`,
		"TZ=UTC 0 22 * * *":   "",
		"0 22 * * *":          "",
		"CRON_TZ= 0 22 * * *": "",
	} {
		if got := appproject.PatternProblem(map[string]any{"syncWindows": []any{map[string]any{"schedule": schedule}}}); got != want {
			t.Errorf("of the schedule %q it says %q, want %q", schedule, got, want)
		}
	}
	if got := appproject.PatternProblem(map[string]any{
		"description": dear, "roles": []any{map[string]any{"policies": []any{"p, proj:a:b, applications, *, */*, allow" + dear}}},
		"sourceRepos":  []any{"https://*.example/*/*", "*"},
		"destinations": []any{map[string]any{"server": "*", "namespace": "team-*", "name": "{edge,dev}-*"}},
		"syncWindows":  []any{map[string]any{"schedule": "0 22 * * *", "duration": "1h", "clusters": []any{"*"}, "manualSync": true}},
	}); got != "" {
		t.Errorf("of an ordinary project it says %q", got)
	}
}
