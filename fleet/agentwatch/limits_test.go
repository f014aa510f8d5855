package agentwatch

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/bounds"
	"github.com/argomesh/argomesh/backends/budget"
)

func TestLimitsOfAnAgent(t *testing.T) {
	for what, c := range map[string]struct {
		limits *v1alpha1.AgentLimits
		want   budget.Limits
	}{
		"nothing said": {want: budget.DefaultLimits()},
		"one said": {
			limits: &v1alpha1.AgentLimits{BytesPerSecond: 2048},
			want:   budget.Limits{Writes: budget.DefaultLimits().Writes, Bytes: budget.Limit{Rate: 2048, Burst: 64 << 20}},
		},
		"all said": {
			limits: &v1alpha1.AgentLimits{WritesPerSecond: 1, WritesBurst: 2, BytesPerSecond: 3, BytesBurst: 4},
			want:   budget.Limits{Writes: budget.Limit{Rate: 1, Burst: 2}, Bytes: budget.Limit{Rate: 3, Burst: 4}},
		},
	} {
		if diff := cmp.Diff(c.want, LimitsOf(c.limits)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", what, diff)
		}
	}
}

func TestBoundsOfAnAgent(t *testing.T) {
	all := &v1alpha1.AgentLimits{Applications: 1, AppProjects: 2, ApplicationBytes: 3, AppProjectBytes: 4, TotalBytes: 5}
	want := bounds.Bounds{Applications: 1, AppProjects: 2, ApplicationBytes: 3, AppProjectBytes: 4, TotalBytes: 5}
	if got := BoundsOf(all); got != want {
		t.Errorf("all said: %+v, want %+v", got, want)
	}
	want = bounds.Default()
	if got := BoundsOf(nil); got != want {
		t.Errorf("nothing said: %+v, want %+v", got, want)
	}
	want.AppProjects = 60
	if got := BoundsOf(&v1alpha1.AgentLimits{AppProjects: 60}); got != want {
		t.Errorf("one said: %+v, want %+v", got, want)
	}
}
