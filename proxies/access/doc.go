// Package access decides what a live call may do on a spoke. It owns what a call
// asks for ([Parse]), the rules ([Policy]), and what a refused caller is told
// ([Decision.Status]). The hub asks it with the Agent's spec.access, the spoke with
// the agent's own configuration; a call goes through when both allow it. Carrying
// the call is left to others.
//
//	request, err := access.Parse(r.Method, r.RequestURI, r.Header)
//	if err != nil {
//		return access.StatusOf(err) // a *metav1.Status
//	}
//	if decision := policy.Decide(request); !decision.Allowed {
//		return decision.Status()
//	}
//
// All but [Tracker.Check] is pure: it does no I/O and knows no clock.
package access
