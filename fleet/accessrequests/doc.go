// Package accessrequests answers AccessRequests: it makes out a token of the resource proxy to a
// person who asks for one of an agent's spoke, if the hub's RBAC lets her create agents/access of that
// Agent. Who asked is what the API server says: a ValidatingAdmissionPolicy of the chart compares
// the request with the user of the call, and without that policy no request is granted.
//
//	r, err := accessrequests.New(accessrequests.Config{Client: client, Namespace: "argocd", ...})
//	err = r.Run(ctx) // by the principal that holds the Lease
//
// What must be guarded ([CheckGuard]) and what is answered ([Decide]) is pure.
package accessrequests
