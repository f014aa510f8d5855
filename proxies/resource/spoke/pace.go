package spoke

import (
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
)

// callsAtOnce is the burst of calls that the hub begins, in seconds of CallsPerSecond.
const callsAtOnce = 10

// newPace bounds the calls that the hub begins.
func newPace(perSecond int) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(perSecond), callsAtOnce*perSecond)
}

// showPace registers how many calls the hub may begin at once now.
func showPace(r prometheus.Registerer, pace *rate.Limiter) error {
	return r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "argomesh_resource_calls_at_once",
		Help: "Calls that the hub may begin at once now. Below 1 it is answered 429.",
	}, pace.Tokens))
}
