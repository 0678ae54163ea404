"""Authorization by the rules of Kafka's StandardAuthorizer over the ACLs of an image (KIP-801), and authentication.

`authorizer` decides, `hosts` compares addresses, and `access` is the interface for the handlers of requests. `sasl`
and `bearer` are the server's side of SASL. All of it is data in, decision out.
"""
