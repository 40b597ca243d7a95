from tests.zygotes import zygote as zygote
