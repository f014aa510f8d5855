// Package bundle is `agentctl bundle`: it puts what a bug report needs of one side into one
// archive, and no secret.
//
// Two things keep secrets out. [Clean] leaves out of each object what may hold one and is of no
// use to a reader: values of annotations, of the environment, of arguments and of Helm, and
// Secrets as a whole. A [Redactor] then goes over every byte, and takes out the values of all
// Secrets of the namespace, tokens, private keys, and passwords of URLs. Where Secrets cannot
// be read, logs stay out, since what they may repeat is not known.
package bundle
