//go:build linux

// Package mistake has the form of a mistake that people make, as a test that makes it.
package mistake

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// Mistake is one that people make. It is a row of docs/reference/mistakes.md, and a test that
// it is told where they look, in time, and that the cure works when the text is followed to
// the letter.
type Mistake struct {
	// Person is what someone does, and does is that.
	Person string
	Does   func(*Scene)
	// On is where it is told, and told what is there by now; and since when, by the object's
	// own time, zero where it has none.
	On   string
	Told func(*Scene) (string, time.Time, error)
	// Within bounds the time from the act until it is told. Zero is for what a command answers.
	// It is printed, and decides in make soak, where the object has a time of its own: a busy
	// machine is late to look.
	Within time.Duration
	// Says is the text, with … for what differs from run to run.
	Says string
	// Cure does what the text says, which it reads from the scene; cured is nil when that has
	// helped.
	Cure  func(*Scene)
	Cured func(*Scene) error
}

// List are rows that follow one another. Lists of them do not touch each other.
type List []Mistake

// Scene is one mistake while it is made.
type Scene struct {
	*testing.T
	// Act is when it was made, if that is later than the begin of does.
	Act time.Time
	// Said is what was told of it.
	Said string
}

// Must ends the test with an error.
func (s *Scene) Must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// Find returns what a part of the text is, by an expression with one group, or without one.
// So a cure follows the text, and fails with it.
func (s *Scene) Find(expression string) string {
	s.Helper()
	found := regexp.MustCompile(expression).FindStringSubmatch(s.Said)
	if found == nil {
		s.Fatalf("there is no %s in %q", expression, s.Said)
	}
	return found[len(found)-1]
}

// Answer keeps what a command printed, which is to be an error.
func (s *Scene) Answer(out string, err error) {
	s.Helper()
	if err == nil {
		s.Fatalf("it is done without a word: %s", out)
	}
	s.Said = out + err.Error()
}

// Printed is told for what a command answers.
func Printed(s *Scene) (string, time.Time, error) { return s.Said, time.Time{}, nil }

// Happen makes the mistakes one after another.
func (list List) Happen(t *testing.T) {
	t.Helper()
	for _, m := range list {
		if !t.Run(m.Person, m.happens) {
			return // the next may begin where this one ends
		}
	}
}

func (m Mistake) happens(t *testing.T) {
	s := &Scene{T: t}
	begin := time.Now()
	m.Does(s)
	if !s.Act.IsZero() {
		begin = s.Act
	}
	var since time.Time
	env.Eventually(t, "it is told on "+m.On, func() error {
		text, at, err := m.Told(s)
		if err != nil {
			return err
		}
		if !reads(text, m.Says) {
			return fmt.Errorf("it says %q, want %q", text, m.Says)
		}
		s.Said, since = text, at
		return nil
	})
	took, known := time.Since(begin), !since.IsZero()
	if known {
		took = since.Sub(begin.Truncate(time.Second)) // as exact as an object's time is
	}
	t.Logf("told after %s, of %s", took.Round(time.Millisecond), m.Within)
	if timesDecide && m.Within > 0 && known && took > m.Within {
		t.Errorf("it is told after %s, more than %s", took, m.Within)
	}
	m.Cure(s)
	env.Eventually(t, "the cure works", func() error { return m.Cured(s) })
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

// Merged is a merge patch of one field, by its dotted name.
func Merged(field string, value any) map[string]any {
	path := strings.Split(field, ".")
	for _, name := range slices.Backward(path) {
		value = map[string]any{name: value}
	}
	return maps.Clone(value.(map[string]any))
}

// OfMirrors are those that people make with what the hub shows of an autonomous spoke, on
// a hub with the policy of the chart. TestMirrorsRefuse makes them.
func OfMirrors(w *env.RoleEnv) List {
	const name, sentence = "shown", "this Application belongs to the autonomous agent edge-2: change or delete it there"
	onHub := func() dynamic.ResourceInterface { return w.Hub.Resource(harness.Applications, env.Autonomous) }
	onSpoke := func() dynamic.ResourceInterface { return w.Spoke.Resource(harness.Applications, "gitops") }
	to := func(namespace string) map[string]any { return Merged("spec.destination.namespace", namespace) }
	return List{
		{
			Person: "an edit of a mirror on the hub",
			Does: func(s *Scene) {
				here := &env.Argo{Hub: w.Hub, Repository: &harness.Repository{URL: "https://git.example.org/x"}}
				env.Create(s.T, onSpoke(), here.Plain(name, "gitops", ""))
				env.Eventually(s.T, "the mirror", func() error { return env.Exists(s.Context(), onHub(), name) })
				env.Eventually(s.T, "the policy in force", func() error {
					return BySentence(onHub().Delete(s.Context(), name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}), sentence)
				})
				s.Answer("", env.MergePatch(s.Context(), onHub(), name, to("web-2")))
			},
			On: "what Argo CD and `kubectl` answer", Told: Printed,
			Says: sentence,
			Cure: func(s *Scene) {
				s.Find("change or delete it there")
				env.Patch(s.T, onSpoke(), name, to("web-2"))
			},
			Cured: func(s *Scene) error {
				return env.FieldIs(s.Context(), onHub(), name, "web-2", "spec", "destination", "namespace")
			},
		},
		{
			Person: "a delete of a mirror on the hub",
			Does:   func(s *Scene) { s.Answer("", onHub().Delete(s.Context(), name, metav1.DeleteOptions{})) },
			On:     "what Argo CD and `kubectl` answer", Told: Printed,
			Says: sentence,
			Cure: func(s *Scene) {
				s.Find("change or delete it there")
				s.Must(onSpoke().Delete(s.Context(), name, metav1.DeleteOptions{}))
			},
			Cured: func(s *Scene) error { return env.Gone(s.Context(), onHub(), name) },
		},
	}
}

// BySentence is nil if something was refused by the sentence that says whose a mirror is.
func BySentence(err error, sentence string) error {
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "denied request: "+sentence) {
		return errors.Join(fmt.Errorf("not refused with %q", sentence), err)
	}
	return nil
}
