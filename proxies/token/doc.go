// Package token makes and checks the tokens with which Argo CD calls the resource
// proxy: ES256 JWTs, each for one agent. It owns the keys, which live in one Secret
// of the hub, when they rotate, and what a token must say. Whether the agent is
// registered, and what a call may do, is left to the caller.
//
//	keys, err := token.New(token.Config{Secrets: client, Namespace: "argocd", HubUID: uid, Metrics: registry, Log: log})
//	go keys.Run(ctx)                    // every replica: keys as they are in the Secret
//	go keys.Rotate(ctx)                 // the holder of the Lease: keys as they should be
//	signed, err := keys.Sign(agent, holder) // for a cluster Secret
//	agent, err := keys.Verify(bearer)   // of a call
//
// Keys, states and the decision what is next ([Rotation.Next]) are pure.
package token
