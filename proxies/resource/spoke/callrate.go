package spoke

import (
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
)

// burstSeconds is the burst of calls that the hub begins, in seconds of CallsPerSecond.
const burstSeconds = 10

// newCallRate bounds the calls that the hub begins.
func newCallRate(perSecond int) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(perSecond), burstSeconds*perSecond)
}

// showCallRate registers how many calls the hub may begin at once now.
func showCallRate(r prometheus.Registerer, callRate *rate.Limiter) error {
	return r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "argomesh_resource_calls_at_once",
		Help: "Calls that the hub may begin at once now. Below 1 it is answered 429.",
	}, callRate.Tokens))
}
