package accessrequests_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet/accessrequests"
)

func TestDecide(t *testing.T) {
	request := &v1alpha1.AccessRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "argocd", CreationTimestamp: metav1.Time{Time: begin.Add(time.Minute)}},
		Spec:       v1alpha1.AccessRequestSpec{Agent: "edge-1", User: v1alpha1.AccessRequestUser{Username: "jane"}},
	}
	agent := &v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}}
	suspended, leaving := agent.DeepCopy(), agent.DeepCopy()
	suspended.Spec.Suspended = true
	leaving.DeletionTimestamp = &metav1.Time{Time: begin}
	for name, c := range map[string]struct {
		facts  accessrequests.Facts
		reason string
		says   string
	}{
		"all is well":                {accessrequests.Facts{GuardedSince: begin, Allowed: true, Agent: agent}, "", ""},
		"no policy":                  {accessrequests.Facts{Guard: errors.New("it is not there"), Allowed: true, Agent: agent}, accessrequests.ReasonNotGuarded, "argomesh-access-requests.argocd: it is not there"},
		"a policy that is new":       {accessrequests.Facts{GuardedSince: begin.Add(58 * time.Second), Allowed: true, Agent: agent}, accessrequests.ReasonNotGuarded, "make another one"},
		"a policy since then":        {accessrequests.Facts{GuardedSince: begin.Add(2 * time.Minute), Allowed: true, Agent: agent}, accessrequests.ReasonNotGuarded, "make another one"},
		"not allowed":                {accessrequests.Facts{GuardedSince: begin, Agent: agent, Why: "no role"}, accessrequests.ReasonNotAllowed, "jane may not create agents/access of Agent edge-1 in namespace argocd: no role"},
		"not allowed, and not there": {accessrequests.Facts{GuardedSince: begin}, accessrequests.ReasonNotAllowed, "resourceNames [edge-1]"},
		"not there":                  {accessrequests.Facts{GuardedSince: begin, Allowed: true}, accessrequests.ReasonNoSuchAgent, "agentctl agent list"},
		"suspended":                  {accessrequests.Facts{GuardedSince: begin, Allowed: true, Agent: suspended}, accessrequests.ReasonNoSuchAgent, "suspended"},
		"being deleted":              {accessrequests.Facts{GuardedSince: begin, Allowed: true, Agent: leaving}, accessrequests.ReasonNoSuchAgent, "being deleted"},
	} {
		got := accessrequests.Decide(request, c.facts)
		if got.Reason != c.reason || !strings.Contains(got.Message, c.says) || (c.says == "") != (got.Message == "") {
			t.Errorf("%s: %+v, want %s with %q", name, got, c.reason, c.says)
		}
	}
}

func TestLifeOf(t *testing.T) {
	for _, c := range []struct {
		asked   int64
		longest time.Duration
		want    time.Duration
	}{
		{0, 12 * time.Hour, time.Hour}, {600, 12 * time.Hour, 10 * time.Minute}, {43200, 12 * time.Hour, 12 * time.Hour}, {43200, time.Hour, time.Hour},
	} {
		request := &v1alpha1.AccessRequest{Spec: v1alpha1.AccessRequestSpec{ExpirationSeconds: c.asked}}
		if got := accessrequests.LifetimeOf(request, c.longest); got != c.want {
			t.Errorf("%d seconds of at most %v: %v, want %v", c.asked, c.longest, got, c.want)
		}
	}
}
