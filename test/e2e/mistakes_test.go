//go:build linux

package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/test/golden"
	"github.com/argomesh/argomesh/test/harness"
)

// mistake is one that people make. It is a row of docs/reference/mistakes.md, and a test that
// it is told where they look, in time, and that the cure works when the text is followed to
// the letter.
type mistake struct {
	// person is what somebody does, and does is that.
	person string
	does   func(*scene)
	// on is where it is told, and told what is there by now; and since when, by the object's
	// own time, zero where it has none.
	on   string
	told func(*scene) (string, time.Time, error)
	// within bounds the time from the act until it is told. Zero is for what a command answers.
	// It decides only where the object has a time of its own: a busy machine is late to look.
	within time.Duration
	// says is the text, with … for what differs from run to run.
	says string
	// cure does what the text says, which it reads from the scene; cured is nil when that has
	// helped.
	cure  func(*scene)
	cured func(*scene) error
}

// mistakes are rows that follow one another. Lists of them do not touch each other.
type mistakes []mistake

// allMistakes are those of all tests. Without worlds nothing of them may be called.
func allMistakes() []mistake {
	return slices.Concat(slices.Concat(argoMistakes(nil)...), accessMistakes(nil), hubMistakes(nil), slices.Concat(agentMistakes(nil)...), mirrorMistakes(nil), redisMistakes(nil))
}

// scene is one mistake while it is made.
type scene struct {
	*testing.T
	// act is when it was made, if that is later than the begin of does.
	act time.Time
	// said is what was told of it.
	said string
}

// must ends the test with an error.
func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// find returns what a part of the text is, by an expression with one group, or without one.
// So a cure follows the text, and fails with it.
func (s *scene) find(expression string) string {
	s.Helper()
	found := regexp.MustCompile(expression).FindStringSubmatch(s.said)
	if found == nil {
		s.Fatalf("there is no %s in %q", expression, s.said)
	}
	return found[len(found)-1]
}

// answer keeps what a command printed, which is to be an error.
func (s *scene) answer(out string, err error) {
	s.Helper()
	if err == nil {
		s.Fatalf("it is done without a word: %s", out)
	}
	s.said = out + err.Error()
}

// printed is told for what a command answers.
func printed(s *scene) (string, time.Time, error) { return s.said, time.Time{}, nil }

// inCondition is told for a condition of an object.
func inCondition(s *scene, where dynamic.ResourceInterface, name, kind string) (string, time.Time, error) {
	o, err := where.Get(s.Context(), name, metav1.GetOptions{})
	if err != nil {
		return "", time.Time{}, err
	}
	c := conditionIn(o, kind)
	if c == nil {
		return "", time.Time{}, fmt.Errorf("%s has no condition %s: %v", name, kind, o.Object["status"])
	}
	since, err := time.Parse(time.RFC3339, fmt.Sprint(c["lastTransitionTime"]))
	return fmt.Sprint(c["message"]), since, err
}

// happen makes the mistakes one after another.
func (list mistakes) happen(t *testing.T) {
	t.Helper()
	for _, m := range list {
		if !t.Run(m.person, m.happens) {
			return // the next may begin where this one ends
		}
	}
}

func (m mistake) happens(t *testing.T) {
	s := &scene{T: t}
	begin := time.Now()
	m.does(s)
	if !s.act.IsZero() {
		begin = s.act
	}
	var since time.Time
	eventually(t, "it is told on "+m.on, func() error {
		text, at, err := m.told(s)
		if err != nil {
			return err
		}
		if !reads(text, m.says) {
			return fmt.Errorf("it says %q, want %q", text, m.says)
		}
		s.said, since = text, at
		return nil
	})
	took, known := time.Since(begin), !since.IsZero()
	if known {
		took = since.Sub(begin.Truncate(time.Second)) // as exact as an object's time is
	}
	t.Logf("told after %s, of %s", took.Round(time.Millisecond), m.within)
	if m.within > 0 && known && took > m.within {
		t.Errorf("it is told after %s, more than %s", took, m.within)
	}
	m.cure(s)
	eventually(t, "the cure works", func() error { return m.cured(s) })
}

// reads reports whether a text has the parts of a pattern, which … are between, in turn.
func reads(text, pattern string) bool {
	for part := range strings.SplitSeq(pattern, "…") {
		_, rest, found := strings.Cut(text, part)
		if !found {
			return false
		}
		text = rest
	}
	return true
}

// reconfigure sets a key of the YAML file of a process of ours, by its dotted name, and
// restarts it. A nil value takes the key out.
func (s *scene) reconfigure(p *harness.Process, file, key string, value any) {
	s.Helper()
	raw, err := os.ReadFile(file)
	s.must(err)
	settings := map[string]any{}
	s.must(yaml.Unmarshal(raw, &settings))
	path := strings.Split(key, ".")
	if value == nil {
		unstructured.RemoveNestedField(settings, path...)
	} else {
		s.must(unstructured.SetNestedField(settings, value, path...))
	}
	raw, err = yaml.Marshal(settings)
	s.must(err)
	s.must(os.WriteFile(file, raw, 0o600))
	s.must(p.Restart(s.Context()))
}

// run runs a command line that a text has, agentctl's with access to a hub.
func (s *scene) run(h *harness.Harness, hub *harness.ControlPlane, namespace, line string) string {
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
func (s *scene) complains(path string, args ...string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	s.answer(string(out), err)
}

// TestMistakesGolden is the page of the table, and that it is one.
func TestMistakesGolden(t *testing.T) {
	rows := allMistakes()
	if len(rows) < 20 {
		t.Errorf("there are %d mistakes, less than 20", len(rows))
	}
	var out strings.Builder
	out.WriteString("# Common mistakes\n\nMade from the tests by `make golden`. Each row is one test on real servers: somebody does that, it is told there and in that time, and what the text says helps when it is followed to the letter.\n" +
		"Times are from the act; `…` stands for what differs.\n\n| What somebody does | Where it is told | Within | Text |\n|---|---|---|---|\n")
	seen := map[string]bool{}
	for _, m := range rows {
		if m.person == "" || m.on == "" || m.says == "" || m.does == nil || m.told == nil || m.cure == nil || m.cured == nil || seen[m.person] {
			t.Errorf("the row %q is not whole, or there twice", m.person)
		}
		seen[m.person] = true
		within := "at once"
		if m.within > 0 {
			within = m.within.String()
		}
		fmt.Fprintf(&out, "| %s | %s | %s | `%s` |\n", m.person, m.on, within, strings.ReplaceAll(m.says, "|", `\|`))
	}
	golden.Compare(t, "../../docs/reference/mistakes.md", out.String())
}

// merged is a merge patch of one field, by its dotted name.
func merged(field string, value any) map[string]any {
	path := strings.Split(field, ".")
	for _, name := range slices.Backward(path) {
		value = map[string]any{name: value}
	}
	return maps.Clone(value.(map[string]any))
}
