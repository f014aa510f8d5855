package sessions

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/fleet/controller"
	"github.com/argomesh/argomesh/stream"
)

// LeftOf is what a status says of what is left; nil when nothing is missing.
func LeftOf(p *budget.Peer, now time.Time) *v1alpha1.AgentBudget {
	if p.Full(now) {
		return nil
	}
	left := p.Levels(now)
	return &v1alpha1.AgentBudget{Writes: left.Writes, Bytes: left.Bytes, At: metav1.NewTime(left.At)}
}

// overBudget says for people which limit a link exceeds; nil for none.
func overBudget(stats mirror.Stats) *controller.OverBudget {
	const waits = "; what it changes waits, and the newest of it is written as soon as it may be"
	switch stats.Over {
	case budget.OverWrites:
		return &controller.OverBudget{
			Reason: "Writes",
			Message: stats.Over.Sentence() + waits +
				". To raise it, set spec.limits.writesPerSecond and writesBurst of the Agent",
		}
	case budget.OverBytes:
		return &controller.OverBudget{
			Reason:  "Bytes",
			Message: stats.Over.Sentence() + waits + ". To raise it, set spec.limits.bytesPerSecond and bytesBurst of the Agent",
		}
	case budget.OverCommon:
		return &controller.OverBudget{
			Reason: "CommonBytes",
			Message: stats.Over.Sentence() + waits +
				". To raise it, set limits.bytes_per_second and limits.bytes_burst of the principal, if the hub's etcd has room",
		}
	}
	for _, refusal := range stats.Parked {
		if refusal.Kind == stream.RefusalOverLimit {
			return &controller.OverBudget{
				Reason:  "Objects",
				Message: "objects are larger, or more, than a limit admits; status.parked names them, and which limit can be raised",
			}
		}
	}
	return nil
}
