package kube

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/argomesh/argomesh/stream"
)

// reason is why an informer cannot list or watch. It is a label of metrics.
type reason string

const (
	unavailable  reason = "unavailable"
	missingCRD   reason = "missing_crd"
	unauthorized reason = "unauthorized"
	forbidden    reason = "forbidden"
	refused      reason = "refused"
)

func reasonOf(err error) reason {
	switch {
	case apierrors.IsNotFound(err):
		return missingCRD
	case apierrors.IsUnauthorized(err):
		return unauthorized
	case apierrors.IsForbidden(err):
		return forbidden
	case errors.Is(kindOf(verbRead, err), stream.ErrRefused):
		return refused
	default:
		return unavailable
	}
}

// health reports that informers fail and recover: once each, however often they
// try in between. An API server that is away is one outage for all of them.
type health struct {
	log     zerolog.Logger
	metrics *metrics

	mu      sync.Mutex // guards what follows
	failing map[*informer]failure
	outage  time.Time // begin of what unavailable informers have in common
}

type failure struct {
	reason reason
	since  time.Time
}

func newHealth(log zerolog.Logger, metrics *metrics) *health {
	return &health{log: log, metrics: metrics, failing: make(map[*informer]failure)}
}

// failed takes note of an attempt of i; ctx is done when i is to stop.
func (h *health) failed(ctx context.Context, i *informer, err error) {
	switch {
	case ctx.Err() != nil:
		return
	case isExpired(err): // the informer lists again
		h.metrics.expired.WithLabelValues(string(i.kind)).Inc()
		return
	}
	why := reasonOf(err)
	h.metrics.failures.WithLabelValues(string(i.kind), string(why)).Inc()

	h.mu.Lock()
	defer h.mu.Unlock()
	before, was := h.failing[i]
	if was && before.reason == why {
		return
	}
	now := time.Now()
	common := why == unavailable && h.count(unavailable) > 0
	h.failing[i] = failure{reason: why, since: now}
	h.metrics.setFailing(i.kind, h.failing)
	log := h.log.With().Str("kind", string(i.kind)).Str("namespace", i.namespace).Str("error", statement(err)).Logger()
	crd := resourceOf(i.kind).GroupResource().String()
	switch {
	case common:
	case why == unavailable:
		h.outage = now
		h.log.Warn().Str("error", statement(err)).Msg("API server is unreachable; informers keep retrying")
	case why == missingCRD:
		log.Error().Str("crd", crd).Str("cure", "install the custom resource definitions of argo cd").
			Msg("custom resource definition is missing, retrying")
	case why == unauthorized:
		log.Error().Str("cure", "give this process credentials the api server accepts").
			Msg("API server does not accept our credentials, retrying")
	case why == forbidden:
		log.Error().Str("cure", "grant list and watch on "+crd).
			Msg("API server forbids list or watch, retrying")
	default:
		log.Error().Msg("API server refuses list or watch, retrying")
	}
}

// ok takes note that the API server answered i.
func (h *health) ok(i *informer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before, was := h.failing[i]
	if !was {
		return
	}
	delete(h.failing, i)
	h.metrics.setFailing(i.kind, h.failing)
	switch {
	case before.reason != unavailable:
		h.log.Info().Str("kind", string(i.kind)).Str("namespace", i.namespace).Dur("duration", time.Since(before.since)).
			Msg("informer recovered")
	case h.count(unavailable) == 0:
		h.log.Info().Dur("duration", time.Since(h.outage)).Msg("API server is back")
	}
}

func (h *health) count(why reason) int {
	n := 0
	for _, f := range h.failing {
		if f.reason == why {
			n++
		}
	}
	return n
}

func (m *metrics) setFailing(kind stream.Kind, failing map[*informer]failure) {
	n := 0
	for i := range failing {
		if i.kind == kind {
			n++
		}
	}
	m.failing.WithLabelValues(string(kind)).Set(float64(n))
}
