package sessions

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/stream"
)

// parkedSince keeps when each entry of an agent was first seen parked. Its zero value is of none. It may be
// used by several goroutines at once.
type parkedSince struct {
	mu    sync.Mutex // guards what follows
	since map[stream.EntryKey]time.Time
}

// objects are the objects of the entries that are parked now. changed says that they are not
// those of the last call. Local is Rules.Local.
func (p *parkedSince) objects(local func(stream.EntryKey) (stream.ResourceKey, bool),
	parked map[stream.EntryKey]stream.Refusal, now time.Time) (objects []v1alpha1.ParkedObject, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.since
	p.since = make(map[stream.EntryKey]time.Time, len(parked))
	for entry, refusal := range parked {
		since, known := before[entry]
		if !known {
			since, changed = now, true
		}
		p.since[entry] = since
		objects = append(objects, v1alpha1.ParkedObject{
			Kind: string(entry.Collection.Kind()), Namespace: namespaceOf(local, entry), Name: entry.Name,
			Reason: reasonOf(refusal.Kind), Message: refusal.Message, Since: metav1.NewTime(since),
		})
	}
	return objects, changed || len(p.since) != len(before)
}
