//go:build linux

package mistakes

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/e2e/internal/mistake"
	"github.com/argomesh/argomesh/test/golden"
	"github.com/argomesh/argomesh/test/harness"
)

// allMistakes are those of all tests. Without environments nothing of them may be called.
func allMistakes() []mistake.Mistake {
	return slices.Concat(slices.Concat(argoMistakes(nil)...), accessMistakes(nil), hubMistakes(nil), slices.Concat(agentMistakes(nil)...), mistake.OfMirrors(nil), redisMistakes(nil))
}

// inCondition is told for a condition of an object.
func inCondition(s *mistake.Scene, where dynamic.ResourceInterface, name, kind string) (string, time.Time, error) {
	o, err := where.Get(s.Context(), name, metav1.GetOptions{})
	if err != nil {
		return "", time.Time{}, err
	}
	c := env.ConditionIn(o, kind)
	if c == nil {
		return "", time.Time{}, fmt.Errorf("%s has no condition %s: %v", name, kind, o.Object["status"])
	}
	since, err := time.Parse(time.RFC3339, fmt.Sprint(c["lastTransitionTime"]))
	return fmt.Sprint(c["message"]), since, err
}

// checked is a mistake that agentctl check finds of an Agent, too, once it is told, and no more once it is cured.
func checked(m mistake.Mistake, w func() *env.Bare, namespace, agent, word string) mistake.Mistake {
	told, cured := m.Told, m.Cured
	m.Told = func(s *mistake.Scene) (string, time.Time, error) {
		text, at, err := told(s)
		if err == nil {
			err = env.CheckFinds(s.Context(), w().Harness, w().Hub, namespace, agent, word)
		}
		return text, at, err
	}
	m.Cured = func(s *mistake.Scene) error {
		if err := cured(s); err != nil {
			return err
		}
		return env.CheckFindsNo(s.Context(), w().Harness, w().Hub, namespace, agent, word)
	}
	return m
}

// reconfigure sets a key of the YAML file of a process of ours, by its dotted name, and
// restarts it. A nil value takes the key out.
func reconfigure(s *mistake.Scene, p *harness.Process, file, key string, value any) {
	s.Helper()
	raw, err := os.ReadFile(file)
	s.Must(err)
	settings := map[string]any{}
	s.Must(yaml.Unmarshal(raw, &settings))
	path := strings.Split(key, ".")
	if value == nil {
		unstructured.RemoveNestedField(settings, path...)
	} else {
		s.Must(unstructured.SetNestedField(settings, value, path...))
	}
	raw, err = yaml.Marshal(settings)
	s.Must(err)
	s.Must(os.WriteFile(file, raw, 0o600))
	s.Must(p.Restart(s.Context()))
}

// run runs a command line that a text has, agentctl's with access to a hub.
func run(s *mistake.Scene, h *harness.Harness, hub *harness.ControlPlane, namespace, line string) string {
	s.Helper()
	args := strings.Fields(line)
	if len(args) < 2 || args[0] != "agentctl" {
		s.Fatalf("%q is no command of agentctl", line)
	}
	out, err := h.Agentctl(s.Context(), hub, append([]string{"--namespace", namespace}, args[1:]...)...)
	if err != nil {
		s.Fatalf("%s: %v\n%s", line, err, out)
	}
	return out
}

// complains runs a program that is to fail, and keeps what it says.
func complains(s *mistake.Scene, path string, args ...string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), env.Patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	s.Answer(string(out), err)
}

// TestMistakesGolden is the page of the table, and that it is one.
func TestMistakesGolden(t *testing.T) {
	rows := allMistakes()
	if len(rows) < 20 {
		t.Errorf("there are %d mistakes, less than 20", len(rows))
	}
	var out strings.Builder
	out.WriteString("# Common mistakes\n\nMade from the tests by `make golden`. Each row is one test on real servers: someone does that, it is told there and in that time, and what the text says helps when it is followed to the letter.\n" +
		"Times are from the act; `…` stands for what differs.\n\n| What a person does | Where it is told | Within | Text |\n|---|---|---|---|\n")
	seen := map[string]bool{}
	for _, m := range rows {
		if m.Person == "" || m.On == "" || m.Says == "" || m.Does == nil || m.Told == nil || m.Cure == nil || m.Cured == nil || seen[m.Person] {
			t.Errorf("the row %q is not whole, or there twice", m.Person)
		}
		seen[m.Person] = true
		within := "at once"
		if m.Within > 0 {
			within = m.Within.String()
		}
		fmt.Fprintf(&out, "| %s | %s | %s | `%s` |\n", m.Person, m.On, within, strings.ReplaceAll(m.Says, "|", `\|`))
	}
	golden.Compare(t, "../../../docs/reference/mistakes.md", out.String())
}
