// Package call is what the gRPC services of a principal have in common, on either
// end: who may call and for how long ([Admission]), how both prove themselves where TLS
// does not do it ([Mutual], [Proof]), which error has which code
// ([StatusOf], [KindOf]), what their TCP connections hold and are kept alive by
// ([ServerOptions], [DialOptions]), and how long a caller waits before it tries again
// ([BackOff]). What a call is for is the business of stream/server and
// stream/client, and of stream/tunnel.
//
//	caller, err := admission.Admit(ctx) // in the handler of a call
//	if err != nil {
//		return err
//	}
//	release, err := admission.Open(caller)
//	if err != nil {
//		return admission.Refuse(caller.Log, "busy", err)
//	}
//	defer release()
//	err = admission.Watch(ctx, caller, admission.Draining())
package call
