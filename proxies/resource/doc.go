// Package resource is the live Kubernetes API of a spoke as seen from the hub: the end
// there ([Hub]). It owns how an HTTP call is checked, passed on and answered; the other end
// is package spoke, and what both do is in the packages beside it: exchange, secretread,
// concurrency and callmetrics. What is allowed is package access's, what is
// remembered of a call package audit's; connections come from a tunnel that this
// package does not know.
//
//	hub, err := resource.NewHub(resource.HubConfig{Dial: tunnel, Tokens: keys, Agents: registry, ...})
//	err = hub.Run(ctx, listener) // behind Envoy, on a unix socket
//
// A call at /agents/<name>/<path> reaches <path> at the API server of that agent's
// spoke, with the agent's own service account there, and what the API server says
// comes back as it is: status, headers, body, trailers. Both ends speak HTTP/1.1, so
// that an exec or a port-forward is bytes in both directions after its upgrade, and
// so that a reader that does not read holds up its own call and nothing else: each
// call under way has a connection of its own, on which the writer waits.
//
// What is lost is never made to look finished. A call whose agent goes away is
// answered 502 or 503 before its first byte, and after it ends without the end of
// its body. A call that is no GET is never sent twice.
package resource
