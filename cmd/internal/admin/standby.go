package admin

// Standby is the reason that an agent gives in its readiness while another one of the same spoke
// holds the Lease. It is as things should be, and says why this one does nothing.
const Standby = "another agent of this spoke works, and this one stands by"
